"""``weft bus purge``: throw away what waits in a group."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import AsJson, BusUrl, GroupName


def purge(
    group: GroupName,
    dead: Annotated[bool, typer.Option("--dead", help="Its dead letters instead.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="The group itself, with all it has.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; it can't be undone.")] = False,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:
    """Throw away the messages that wait in a group. What its subscribers hold stays, unless the group is forgotten."""
    import asyncio

    from weft.cli.bus_open import bus_at
    from weft.cli.words import number, print_json

    if not yes:
        raise typer.BadParameter("this can't be undone; say --yes")

    async def throw() -> int:
        async with bus_at(bus) as broker:
            return await broker.purge(group, dead=dead, forget=forget)

    thrown = asyncio.run(throw())
    if as_json:
        print_json({"group": group, "thrown": thrown, "forgotten": forget})
    else:
        print(f"{number(thrown, 'message')} thrown away" + (f"; the group {group} is forgotten" if forget else ""))
