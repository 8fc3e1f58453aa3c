"""``weft status``: how the crawls of a folder or a fleet stand, and what one of them waits for."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import AsJson, FrontierUrl
from weft.cli.targets import DeadKind


def status(
    crawl: Annotated[
        str, typer.Argument(help="A crawl, or a spider file; without it, all.", metavar="CRAWL", show_default=False)
    ] = "",
    dead: Annotated[bool, typer.Option("--dead", help="List dead letters, the latest first.")] = False,
    kind: DeadKind = "",
    detail: Annotated[bool, typer.Option("--detail", help="Dead letters with their tracebacks.")] = False,
    lanes: Annotated[bool, typer.Option("--lanes", help="List the hosts that have pages waiting.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", help="How many to list; 0 for all.", min=0)] = 20,
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show how the crawls here stand, or one of them in detail."""
    import asyncio

    from weft.cli import status_dead, status_view
    from weft.cli.crawls import choose, depot_at, opened, standing_of, survey
    from weft.cli.words import say

    async def show() -> None:
        async with depot_at(frontier) as depot:
            if not (crawl or dead or kind or detail or lanes):
                status_view.show_all(await survey(depot), depot.address, as_json)
                return
            name, remark = await choose(depot, crawl)
            if remark:
                say(remark)
            async with opened(depot, name) as store:
                if lanes:
                    await status_view.show_lanes(store, limit, as_json)
                elif dead or kind or detail:
                    await status_dead.show(store, limit, kind, detail, as_json)
                else:
                    await status_view.show_one(await standing_of(depot, name, store), store, as_json)

    asyncio.run(show())
