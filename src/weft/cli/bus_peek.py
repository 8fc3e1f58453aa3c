"""``weft bus peek``: the messages of a group, without taking them."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import AsJson, BusUrl, GroupName


def peek(
    group: GroupName,
    dead: Annotated[bool, typer.Option("--dead", help="Its dead letters, and why they are.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", help="How many.", min=1)] = 10,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show the messages that come next in a group. JSON lines where standard output is no terminal."""
    import asyncio

    from weft.cli.bus_open import bus_at
    from weft.cli.bus_view import show_messages

    async def show() -> None:
        async with bus_at(bus) as broker:
            show_messages(await broker.peek(group, limit, dead=dead), as_json)

    asyncio.run(show())
