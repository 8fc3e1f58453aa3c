"""``uttu pause``, ``resume``, ``stop`` and ``rate``: control a running crawl, on all its workers.

The commands write to the crawl's store, and workers read it there. So a command works from any machine that reaches the
frontier.
"""

from __future__ import annotations

from typing import Annotated

import typer

from uttu.cli.options import FrontierUrl, GivenCrawl


def pause(crawl: GivenCrawl, frontier: FrontierUrl = "") -> None:
    """Pause a crawl: all workers finish the pages in flight, then wait."""
    import asyncio

    from uttu.cli.output import say
    from uttu.operations import control

    print(asyncio.run(control.change_state(crawl, frontier, control.pause, say)))


def resume(crawl: GivenCrawl, frontier: FrontierUrl = "") -> None:
    """Resume a paused crawl."""
    import asyncio

    from uttu.cli.output import say
    from uttu.operations import control

    print(asyncio.run(control.change_state(crawl, frontier, control.resume, say)))


def stop(crawl: GivenCrawl, frontier: FrontierUrl = "") -> None:
    """Stop a crawl: all workers finish the pages in flight, then end. The command that started it resumes it."""
    import asyncio

    from uttu.cli.output import say
    from uttu.operations import control

    print(asyncio.run(control.change_state(crawl, frontier, control.stop, say)))


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
    """Set the delay of HOST for all workers: one request at a time, whatever robots.txt or settings say."""
    import asyncio

    from uttu.cli.output import format_duration, say
    from uttu.errors import UttuError
    from uttu.model.crawl import CrawlState
    from uttu.operations.control import check_not_moved, resolve_crawl
    from uttu.operations.crawls import connect_configured_frontier, open_store, read_status

    if (delay is None) == (not reset):
        raise typer.BadParameter("give either --delay SECONDS or --reset")
    lane = _parse_lane(host)

    async def pin() -> None:
        async with connect_configured_frontier(frontier) as catalog:
            name = await resolve_crawl(catalog, crawl, say)
            async with open_store(catalog, name) as store:
                standing = await read_status(catalog, name, store)
                check_not_moved(standing)
                if standing.state == CrawlState.FINISHED:
                    raise UttuError(f"crawl {name!r} has finished; a new one starts with: {standing.command()}")
                await store.inspector.pin(lane, delay)
        if delay is None:
            print(f"{lane} goes at its own pace again")
        else:
            pace = f"a request every {format_duration(delay)}" if delay else "one request at a time, without a delay"
            print(f"{lane} gets {pace}. Undo it with: {standing.words('rate', name, lane, '--reset')}")

    asyncio.run(pin())


def _parse_lane(host: str) -> str:
    """The lane of a host, named as in requests: without the default port of the scheme."""
    from uttu.cli.options import parse_url_argument
    from uttu.model.url import canonical, host_of

    if "://" in host:
        return host_of(parse_url_argument(host))
    url = parse_url_argument(host)
    rest = url.partition("://")[2]
    return min((host_of(canonical(f"{scheme}://{rest}")) for scheme in ("http", "https")), key=len)
