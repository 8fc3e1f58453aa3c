"""``uttu pause``, ``resume``, ``stop``, ``rate``, ``workers`` and ``drain``: control a running crawl and its workers.

The commands write to the crawl's store, and workers read it there. So a command works from any machine that reaches the
frontier.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from uttu.cli.options import AsJson, FrontierUrl, GivenCrawl, WhichCrawl, find_operator

if TYPE_CHECKING:
    from uttu.operations.control import ControlDecision
    from uttu.operations.crawls import CrawlStatus
    from uttu.operations.workers import WorkerState


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
    host: Annotated[str, typer.Argument(help="A host, or a URL on it.", metavar="HOST", show_default=False)],
    delay: Annotated[
        float | None,
        typer.Option(help="Seconds between two requests.", metavar="SECONDS", min=0, show_default=False),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Remove the delay that was set.")] = False,
    frontier: FrontierUrl = "",
) -> None:
    """Set the delay of HOST for all workers: one request at a time, whatever robots.txt or settings say."""
    import asyncio

    from uttu.cli.output import format_duration, say
    from uttu.operations.control import parse_lane, set_rate

    if (delay is None) == (not reset):
        raise typer.BadParameter("Give either --delay SECONDS or --reset")
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


def workers(
    crawl: WhichCrawl = "",
    log: Annotated[bool, typer.Option("--log", help="With the latest lines of the log of each.")] = False,
    gone: Annotated[bool, typer.Option("--gone", help="Also those that have ended.")] = False,
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show the workers of a crawl, on all machines: what each does now, and its log."""
    import asyncio

    from uttu.cli.output import Screen, print_json, say
    from uttu.operations.workers import read_workers

    found = [each for each in asyncio.run(read_workers(crawl, frontier, say)) if each.alive or gone]
    if as_json:
        print_json(found)
        return
    if not found:
        say("no worker is at it; --gone lists those that have ended")
        return
    screen = Screen()
    numbers = ("pid", "pages", "on average", "in flight", "held")
    screen.table(("worker", "is", "machine", *numbers, "reported"), [_make_row(each) for each in found], numbers)
    for each in found if log else ():
        screen.line()
        screen.line(each.name, "bold")
        for line in each.log:
            screen.line(f"  {time.strftime('%H:%M:%S', time.localtime(line.at))} {line.level:<7} {line.text}")
        if not each.log:
            screen.line("  nothing was logged", "dim")


def _make_row(each: WorkerState) -> tuple[str, ...]:
    from uttu.cli.output import format_age

    state = ("leaving" if each.draining else "working") if each.alive else "gone"
    return (
        each.name,
        state,
        each.host,
        str(each.pid),
        f"{each.pages:,}",
        f"{each.rate:,.1f}/s",
        str(each.in_flight),
        str(each.held),
        format_age(each.age),
    )


def drain(
    crawl: GivenCrawl,
    worker: Annotated[
        str, typer.Argument(help="A worker, or the beginning of its name.", metavar="WORKER", show_default=False)
    ],
    frontier: FrontierUrl = "",
) -> None:
    """Let one worker finish its pages and leave; the others go on. uttu workers lists them."""
    import asyncio

    from uttu.cli.output import format_count, say
    from uttu.operations.workers import drain_worker

    done = asyncio.run(drain_worker(crawl, frontier, worker, say, by=find_operator()))
    left = f"{format_count(done.left, 'worker')} {'goes' if done.left == 1 else 'go'} on"
    if done.is_new:
        print(f"{done.worker.name} finishes {format_count(done.worker.in_flight, 'page')} and leaves; {left}")
    else:
        print(f"{done.worker.name} is leaving already; {left}")
