"""``weft rate``: how fast one host may be asked, while the crawl runs."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import FrontierUrl
from weft.cli.targets import GivenCrawl


def rate(
    crawl: GivenCrawl,
    host: Annotated[str, typer.Argument(help="A host, or a URL of it.", metavar="HOST", show_default=False)],
    delay: Annotated[
        float | None,
        typer.Option(help="Seconds between two requests.", metavar="SECONDS", min=0, show_default=False),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Let the crawl decide again.")] = False,
    frontier: FrontierUrl = "",
) -> None:
    """Let all workers ask HOST one request at a time, so many seconds apart, whatever robots.txt or settings say."""
    import asyncio

    from weft.cli.crawls import depot_at, opened, standing_of
    from weft.cli.steering import check_is_here, named
    from weft.cli.words import span
    from weft.engine.states import State
    from weft.errors import WeftError

    if (delay is None) == (not reset):
        raise typer.BadParameter("give either --delay SECONDS or --reset")
    lane = _lane_of(host)

    async def pin() -> None:
        async with depot_at(frontier) as depot:
            name = await named(depot, crawl)
            async with opened(depot, name) as store:
                standing = await standing_of(depot, name, store)
                check_is_here(standing)
                if standing.state == State.FINISHED:
                    raise WeftError(f"crawl {name!r} has finished; a new one starts with: {standing.command()}")
                await store.inspector.pin(lane, delay)
        if delay is None:
            print(f"{lane} goes at its own pace again")
        else:
            pace = f"a request every {span(delay)}" if delay else "one request at a time, without a delay"
            print(f"{lane} gets {pace}. Undo it with: {standing.words('rate', name, lane, '--reset')}")

    asyncio.run(pin())


def _lane_of(host: str) -> str:
    """The lane of a host as requests to it name it: without a port that is its scheme's own."""
    from weft.cli.one_request import given_url
    from weft.model.url import canonical, host_of

    if "://" in host:
        return host_of(given_url(host))
    url = given_url(host)
    rest = url.partition("://")[2]
    return min((host_of(canonical(f"{scheme}://{rest}")) for scheme in ("http", "https")), key=len)
