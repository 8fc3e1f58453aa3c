"""``weft bus groups``: all groups of a broker."""

from __future__ import annotations

from weft.cli.options import AsJson, BusUrl


def groups(bus: BusUrl = "", as_json: AsJson = False) -> None:
    """Show the groups and how far behind they are. JSON lines where standard output is no terminal."""
    import asyncio

    from weft.cli.bus_open import bus_at
    from weft.cli.bus_view import show_groups

    async def show() -> None:
        async with bus_at(bus) as broker:
            show_groups(await broker.groups(), as_json)

    asyncio.run(show())
