"""``uttu workers`` and ``uttu drain``: the workers of a crawl, one by one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from uttu.cli.options import AsJson, FrontierUrl, GivenCrawl, WhichCrawl, find_operator

if TYPE_CHECKING:
    from uttu.operations.workers import WorkerState


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
