"""``uttu pause``, ``resume``, ``stop`` and ``rate``: control a running crawl, on all its workers.

The commands write to the crawl's store, and workers read it there. So a command works from any machine that reaches the
frontier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from uttu.cli.options import FrontierUrl, GivenCrawl, find_operator

if TYPE_CHECKING:
    from uttu.operations.control import ControlDecision
    from uttu.operations.crawls import CrawlStatus


def pause(crawl: GivenCrawl, frontier: FrontierUrl = "") -> None:
    """Pause a crawl: all workers finish the pages in flight, then wait."""
    from uttu.operations import control

    _change(crawl, frontier, control.pause)


def resume(crawl: GivenCrawl, frontier: FrontierUrl = "") -> None:
    """Resume a paused crawl."""
    from uttu.operations import control

    _change(crawl, frontier, control.resume)


def stop(crawl: GivenCrawl, frontier: FrontierUrl = "") -> None:
    """Stop a crawl: all workers finish the pages in flight, then end. The command that started it resumes it."""
    from uttu.operations import control

    _change(crawl, frontier, control.stop)


def _change(crawl: str, frontier: str, decide: Callable[[CrawlStatus], ControlDecision]) -> None:
    import asyncio

    from uttu.cli.output import say
    from uttu.operations.control import announce_change, change_state

    async def run() -> None:
        change = await change_state(crawl, frontier, decide, say, by=find_operator())
        # The change is stored. Print it before the bus is notified, which takes seconds if the broker is away.
        print(change.said, flush=True)
        await announce_change(change, say)

    asyncio.run(run())


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
    from uttu.operations.control import parse_lane, set_rate

    if (delay is None) == (not reset):
        raise typer.BadParameter("give either --delay SECONDS or --reset")
    try:
        lane = parse_lane(host)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    status = asyncio.run(set_rate(crawl, frontier, lane, delay, say, by=find_operator())).status
    if delay is None:
        print(f"{lane} goes at its own pace again")
    else:
        pace = f"a request every {format_duration(delay)}" if delay else "one request at a time, without a delay"
        print(f"{lane} gets {pace}. Undo it with: {status.words('rate', status.name, lane, '--reset')}")
