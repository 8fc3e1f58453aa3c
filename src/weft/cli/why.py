"""``weft why``: what became of a URL."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import AsJson, FrontierUrl
from weft.cli.targets import WhichCrawlOption


def why(
    url: Annotated[str, typer.Argument(help="The URL in question.", metavar="URL", show_default=False)],
    crawl: WhichCrawlOption = "",
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Tell what became of URL: done, dead and why, waiting for what, out of scope …

    Exits with 1 if the crawl does not know it.
    """
    import asyncio

    from weft.cli import why_words
    from weft.cli.crawls import choose, depot_at, opened, standing_of
    from weft.cli.exits import FAILED
    from weft.cli.one_request import given_url
    from weft.cli.why_fate import Fate, fates
    from weft.cli.words import say

    async def look() -> list[Fate]:
        async with depot_at(frontier) as depot:
            name, remark = await choose(depot, crawl)
            if remark:
                say(remark)
            async with opened(depot, name) as store:
                standing = await standing_of(depot, name, store)
                found = await fates(store, standing, wanted)
        (why_words.print_data if as_json else why_words.show)(found, standing)
        return found

    wanted = given_url(url)
    if wanted != url:
        say(f"the same as {wanted}")
    if asyncio.run(look())[0].trace.state == "unknown":
        raise typer.Exit(FAILED)
