"""``weft top``: a crawl as it runs, over all its workers."""

from __future__ import annotations

from weft.cli.options import AsJson, FrontierUrl
from weft.cli.targets import WhichCrawl


def top(crawl: WhichCrawl = "", frontier: FrontierUrl = "", as_json: AsJson = False) -> None:
    """Watch a crawl over all its workers; q or Ctrl-C ends. Without a terminal, show once how it stands."""
    import asyncio
    import contextlib
    import sys

    from weft.cli import top_view
    from weft.cli.crawls import depot_at, opened
    from weft.cli.steering import named
    from weft.cli.words import print_json

    async def show() -> None:
        async with depot_at(frontier) as depot:
            name = await named(depot, crawl)
            async with opened(depot, name) as store:
                watch = top_view.Watch(depot, name, store)
                if as_json:
                    print_json(top_view.as_dict(await watch.look()))
                elif live:
                    await top_view.live(watch)
                else:
                    top_view.show(await watch.look())

    live = sys.stdout.isatty() and not as_json
    # There is no other way out, so it is no failure.
    with contextlib.suppress(*[KeyboardInterrupt] if live else []):
        asyncio.run(show())
