"""``weft bus lag``: how far behind one group is."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import AsJson, BusUrl, GroupName


def lag(
    group: GroupName,
    watch: Annotated[bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")] = False,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show what a group has not done yet. JSON lines where standard output is no terminal."""
    import asyncio
    import contextlib

    from weft.cli.bus_open import bus_at
    from weft.cli.bus_view import show_groups, watch_group

    async def show() -> None:
        async with bus_at(bus) as broker:
            if watch:
                await watch_group(broker, group, as_json)
            else:
                show_groups(await broker.groups(group), as_json)

    # There is no other way out of a watch, so it is no failure.
    with contextlib.suppress(*[KeyboardInterrupt] if watch else []):
        asyncio.run(show())
