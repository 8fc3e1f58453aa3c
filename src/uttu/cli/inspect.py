"""``uttu status``, ``top``, ``why``, ``settings`` and ``keys``: show the state of crawls.

:class:`~uttu.operations.monitor.CrawlMonitor` takes the snapshots of ``top``; this module draws them, as text or as a
live view. :mod:`uttu.cli.views` draws ``status`` and ``why``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from uttu.cli.options import AsJson, DeadKind, DeadMessage, FrontierUrl, WhichCrawl, WhichCrawlOption
from uttu.cli.output import Screen, build_table, format_age, format_duration, format_size
from uttu.cli.views import format_pace
from uttu.model.inspection import LaneFilter
from uttu.model.lease import LaneState
from uttu.operations.diagnosis import WaitKind, describe_wait
from uttu.operations.monitor import SNAPSHOT_SECONDS, CrawlMonitor, CrawlSnapshot

if TYPE_CHECKING:
    from uttu.operations.crawls import CrawlDetails, CrawlList
    from uttu.operations.diagnosis import Problem, ProgressEstimate

_WORKERS = ("worker", "pages/s", "pages", "in flight", "held", "reported")
_LANE_HEAD = ("lane", "pending", "out", "so far", "pace", "waits for")
_NUMBERS = ("pages/s", "pages", "in flight", "held", "pending", "out", "so far")


def format_wait(lane: LaneState) -> str:
    """The reason why the next page of a lane waits; empty if the lane has no pages."""
    wait = describe_wait(lane)
    match wait.kind:
        case WaitKind.HELD:
            return f"{wait.text}, {format_duration(wait.seconds)} more"
        case WaitKind.ACTIVE:
            return "the page in flight" if lane.active == 1 else f"the {lane.active} pages in flight"
        case WaitKind.PACE | WaitKind.PINNED:
            return f"its delay, {format_duration(wait.seconds)} more"
        case WaitKind.READY:
            return "a worker"
        case WaitKind.IDLE:
            return ""


def print_snapshot(look: CrawlSnapshot) -> None:
    """Print one snapshot, for a file or a pipe."""
    screen = Screen()
    screen.marked(look.standing.state, f"  {look.standing.name}{look.standing.how}")
    screen.pairs(_summary(look))
    if look.workers:
        screen.line()
        screen.table(_WORKERS, _worker_rows(look), _NUMBERS)
    if look.lanes:
        screen.line()
        screen.table(_LANE_HEAD, _lane_rows(look), _NUMBERS)


def _summary(look: CrawlSnapshot) -> list[tuple[str, str]]:
    counts = look.standing.counts
    to_do = f"{counts.pending:,} pending, {counts.leased:,} leased, {counts.delayed:,} delayed"
    if look.standing.feed:
        to_do += f", {look.standing.feed:,} in the feed"
    workers = f"{len(look.workers):,} at work" + (f", {look.gone:,} gone" if look.gone else "")
    return [
        ("pages", f"{counts.done:,} done, {counts.dead:,} dead, {look.rate:,.1f}/s"),
        ("items", f"{counts.items:,}"),
        ("received", format_size(counts.bytes)),
        ("to do", to_do),
        ("workers", workers),
    ]


def _worker_rows(look: CrawlSnapshot) -> list[tuple[str, ...]]:
    return [
        (each.name, f"{each.rate:,.1f}", f"{each.pages:,}", str(each.in_flight), str(each.held), format_age(each.age))
        for each in look.workers
    ]


def _lane_rows(look: CrawlSnapshot) -> list[tuple[str, ...]]:
    return [
        (
            lane.name,
            f"{lane.pending:,}",
            f"{lane.active:,}",
            f"{lane.total:,}",
            format_pace(lane),
            format_wait(lane),
        )
        for lane in look.lanes
    ]


def snapshot_dict(look: CrawlSnapshot) -> dict[str, Any]:
    standing = look.standing
    return {
        "crawl": standing.name,
        "state": standing.state,
        "reason": str(standing.reason),
        "counts": msgspec.structs.asdict(standing.counts),
        "feed": standing.feed,
        "rate": look.rate,
        "workers": {each.name: _without(msgspec.structs.asdict(each), "name") for each in look.workers},
        "gone": look.gone,
        "lanes": [
            {
                **msgspec.structs.asdict(lane),
                "pace": msgspec.structs.asdict(lane.pace),
                "waits_for": format_wait(lane),
            }
            for lane in look.lanes
        ],
    }


def _without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


async def watch_live(watch: CrawlMonitor) -> None:
    """Show snapshots on a terminal every ``SNAPSHOT_SECONDS``, until the user presses q or Ctrl-C."""
    ended = asyncio.Event()
    with _keys(ended), Live(console=Console(highlight=False), auto_refresh=False, screen=True) as screen:
        while not ended.is_set():
            screen.update(_draw_snapshot(await watch.look()), refresh=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SNAPSHOT_SECONDS):
                    await ended.wait()


def _draw_snapshot(look: CrawlSnapshot) -> Group:
    standing = look.standing
    title = Text.assemble((standing.name, "bold"), f"  {standing.state}{standing.how}", ("   q ends", "dim"))
    pairs = [Text.assemble((name.ljust(10), "dim"), value) for name, value in _summary(look)]
    workers = build_table(_WORKERS, _worker_rows(look), _NUMBERS)
    lanes = build_table(_LANE_HEAD, _lane_rows(look), _NUMBERS)
    return Group(title, *pairs, Text(), workers, Text(), lanes)


@contextlib.contextmanager
def _keys(ended: asyncio.Event) -> Iterator[None]:
    """Set ``ended`` when q is pressed, without Enter. Does nothing if standard input is not a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()

    def pressed() -> None:
        if os.read(keyboard, 64).lower()[:1] in (b"q", b""):
            ended.set()

    former = termios.tcgetattr(keyboard)
    loop = asyncio.get_running_loop()
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, pressed)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, former)


def status(
    crawl: Annotated[
        str,
        typer.Argument(help="A crawl, or a spider file; all crawls by default.", metavar="CRAWL", show_default=False),
    ] = "",
    dead: Annotated[bool, typer.Option("--dead", help="List dead letters, the latest first.")] = False,
    kind: DeadKind = "",
    detail: Annotated[bool, typer.Option("--detail", help="Dead letters with their tracebacks.")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="Count dead letters by kind and message.")] = False,
    message: DeadMessage = "",
    lanes: Annotated[bool, typer.Option("--lanes", help="List the hosts that have pages waiting.")] = False,
    only: Annotated[
        LaneFilter | None, typer.Option(help="Only hosts in this state, with --lanes.", show_default=False)
    ] = None,
    match: Annotated[
        str,
        typer.Option(
            help="Only hosts, or dead letters by URL or reason, with this text.", metavar="TEXT", show_default=False
        ),
    ] = "",
    limit: Annotated[int, typer.Option("-n", "--limit", help="How many to list; 0 for all.", min=0)] = 20,
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show the state of all crawls here, or one of them in detail."""
    import asyncio

    from uttu.cli import views
    from uttu.cli.output import say
    from uttu.model.inspection import DeadQuery, LaneQuery
    from uttu.operations import crawls

    if lanes or only:
        asked = LaneQuery(limit=limit, match=match, only=only or LaneFilter.ALL)
        views.show_lanes(asyncio.run(crawls.read_lanes(crawl, frontier, asked, say)), asked, as_json)
    elif dead or kind or detail or groups or message or match:
        query = DeadQuery(limit=1 if groups else limit, kind=kind, message=message, match=match)
        letters = asyncio.run(crawls.read_dead_letters(crawl, frontier, query, say))
        if groups:
            views.show_dead_groups(letters.groups, as_json)
        else:
            views.show_dead_letters(letters, query, detail, as_json)
    elif crawl:
        views.show_one(*asyncio.run(_diagnose_one(crawl, frontier)), as_json)
    else:
        views.show_all(*asyncio.run(_diagnose_all(frontier)), as_json)


# Problems are found in the samples of these seconds, and for this number of crawls at most.
_JUDGED_SECONDS = 600.0
_MOST_JUDGED = 50


async def _diagnose_one(crawl: str, frontier: str) -> tuple[CrawlDetails, ProgressEstimate, list[Problem]]:
    """A crawl in detail, how far it is, and what is wrong with it."""
    from uttu.cli.output import say
    from uttu.operations import crawls, diagnosis, history

    details = await crawls.read_details(crawl, frontier, say)
    name = details.status.name
    samples = await history.read_recent_samples(name, frontier, _JUDGED_SECONDS, say)
    held = details.held.total if details.held.total is not None else len(details.held.lanes)
    progress = diagnosis.describe_progress(details.status, samples, held)
    return details, progress, diagnosis.find_problems([details.status], {name: samples})


async def _diagnose_all(frontier: str) -> tuple[CrawlList, list[Problem]]:
    """All crawls of a frontier, and what is wrong with them."""
    from uttu.cli.output import say
    from uttu.operations import crawls, diagnosis, history

    found = await crawls.read_all(frontier)
    alive = [status.name for status in found.crawls if status.alive][:_MOST_JUDGED]
    samples = {name: await history.read_recent_samples(name, frontier, _JUDGED_SECONDS, say) for name in alive}
    return found, diagnosis.find_problems(found.crawls, samples)


def top(crawl: WhichCrawl = "", frontier: FrontierUrl = "", as_json: AsJson = False) -> None:
    """Watch a crawl over all its workers; q or Ctrl-C ends. Without a terminal, print its state once."""
    import asyncio
    import contextlib
    import sys

    from uttu.cli.output import print_json, say
    from uttu.operations.monitor import watch_crawl

    async def show() -> None:
        async with watch_crawl(crawl, frontier, say) as watch:
            if as_json:
                print_json(snapshot_dict(await watch.look()))
            elif live:
                await watch_live(watch)
            else:
                print_snapshot(await watch.look())

    live = sys.stdout.isatty() and not as_json
    # Ctrl-C is a normal way to end the live view, so it is not a failure.
    with contextlib.suppress(*[KeyboardInterrupt] if live else []):
        asyncio.run(show())


def why(
    url: Annotated[str, typer.Argument(help="The URL to explain.", metavar="URL", show_default=False)],
    crawl: WhichCrawlOption = "",
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Explain what happened to URL: done, dead and why, waiting for what, out of scope …

    Exits with 1 if the crawl does not know it.
    """
    import asyncio

    from uttu.cli import views
    from uttu.cli.options import parse_url_argument
    from uttu.cli.output import say
    from uttu.errors import FAILED
    from uttu.model.lease import RequestState
    from uttu.operations.explanation import explain

    wanted = parse_url_argument(url)
    if wanted != url:
        say(f"the same as {wanted}")
    found = asyncio.run(explain(crawl, frontier, wanted, say))
    (views.print_explanation if as_json else views.show_explanation)(found.chain, found.status)
    if found.chain[0].trace.state is RequestState.UNKNOWN:
        raise typer.Exit(FAILED)


def settings(
    crawl: WhichCrawl = "",
    given: Annotated[bool, typer.Option("--given", help="Leave out the defaults.")] = False,
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show the settings that a crawl runs with, and where each came from. Passwords are masked."""
    import asyncio

    from uttu.cli.output import print_json, say
    from uttu.model.crawl import SettingSource
    from uttu.operations.crawls import read_settings

    found = asyncio.run(read_settings(crawl, frontier, say))
    shown = [each for each in found if not given or each.source is not SettingSource.DEFAULT]
    if as_json:
        print_json(shown)
    elif shown:
        rows = [(each.name, msgspec.json.encode(each.value).decode(), each.source) for each in shown]
        Screen().table(("setting", "value", "source"), rows)
    else:
        say("all settings have their defaults" if found else "its settings are not known: an older Uttu started it")


def keys(crawl: WhichCrawl = "", frontier: FrontierUrl = "", as_json: AsJson = False) -> None:
    """Show what a crawl on Redis takes in the memory of the server, by kind of key."""
    import asyncio

    from uttu.cli.output import print_json, say
    from uttu.operations.crawls import read_keys

    found = asyncio.run(read_keys(crawl, frontier, say))
    if as_json:
        print_json(found)
        return
    rows = [(each.kind, f"{each.keys:,}", format_size(each.bytes)) for each in found]
    Screen().table(("kind", "keys", "size"), rows, ("keys", "size"))
