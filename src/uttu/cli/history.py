"""``uttu history`` and ``uttu events``: a crawl over time, what happened in it, and in words what is wrong with it."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

import typer

from uttu.cli.options import AsJson, FrontierUrl, WhichCrawl
from uttu.cli.output import Screen, format_count, format_duration, format_moment, format_size, print_json, say
from uttu.model.history import CrawlEvent, EventKind
from uttu.operations.diagnosis import Problem, ProblemKind, ProgressEstimate
from uttu.operations.history import HistoryPoint

_FOLLOW_SECONDS = 1.0
# Positions of events only grow, and one call returns at most this many.
_BATCH = 500


def history(
    crawl: WhichCrawl = "",
    minutes: Annotated[float, typer.Option(help="How far back.", metavar="MINUTES", min=0.1)] = 60.0,
    points: Annotated[int, typer.Option("-n", "--points", help="How many lines at most.", min=1, max=5000)] = 20,
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show a crawl over time: pages, items, errors and bytes per second, latencies and status codes."""
    import asyncio

    from uttu.operations.history import read_history

    found = asyncio.run(read_history(crawl, frontier, 60 * minutes, points, say)).points
    if as_json:
        print_json(found)
    elif found:
        Screen().table(_HEAD, [_make_row(point) for point in found], _HEAD[1:-1])
    else:
        say(f"nothing was recorded in the last {format_duration(60 * minutes)}; --minutes looks further back")


_HEAD = (
    "until",
    "pages/s",
    "items/s",
    "errors/s",
    "retries/s",
    "received/s",
    "mean",
    "p95",
    "to do",
    "workers",
    "answers",
)


def _make_row(point: HistoryPoint) -> tuple[str, ...]:
    answers = sum(point.statuses.values())
    return (
        format_moment(point.at).partition(",")[0],
        f"{point.pages:,.1f}",
        f"{point.items:,.1f}",
        f"{point.errors:,.1f}",
        f"{point.retries:,.1f}",
        format_size(point.bytes),
        "" if point.latency_mean is None else format_duration(point.latency_mean),
        "" if point.latency_p95 is None else format_duration(point.latency_p95),
        f"{point.pending:,}",
        str(point.workers),
        ", ".join(f"{rate / answers:.0%} {name}" for name, rate in point.statuses.items()),
    )


def events(
    crawl: WhichCrawl = "",
    limit: Annotated[int, typer.Option("-n", "--limit", help="How many: the latest.", min=1, max=2000)] = 20,
    kind: Annotated[
        EventKind | None, typer.Option(help="Only events of this kind.", metavar="KIND", show_default=False)
    ] = None,
    before: Annotated[int, typer.Option(help="Only events before this position; --json shows it.", min=0)] = 0,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until Ctrl-C.")] = False,
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show what happened in a crawl: its states, its workers, hosts that were held, what operators did."""
    import asyncio

    from uttu.operations.history import EventQuery, read_event_page, read_events

    async def show() -> None:
        query = EventQuery(limit=limit, before=before, kind=kind)
        found = (await read_event_page(crawl, frontier, query, say)).events[::-1]
        if not found and not follow:
            say("nothing has happened yet")
        position = found[-1].position if found else 0
        _print_events(found, as_json)
        while follow:
            await asyncio.sleep(_FOLLOW_SECONDS)
            found = await read_events(crawl, frontier, position, _BATCH, lambda text: None)
            position = found[-1].position if found else position
            _print_events([event for event in found if kind in (None, event.kind)], as_json)

    # Ctrl-C is the normal way to end, so it is not a failure.
    with contextlib.suppress(*[KeyboardInterrupt] if follow else []):
        asyncio.run(show())


def _print_events(found: list[CrawlEvent], as_json: bool) -> None:
    for event in found:
        if as_json:
            print_json(event)
        else:
            moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
            print(f"{moment}  {event.kind:<8}  {describe_event(event)}", flush=True)


def describe_event(event: CrawlEvent) -> str:
    """An event in words."""
    fields = dict(event.fields)
    match event.kind:
        case EventKind.STATE:
            reason = fields.get("reason")
            return f"the crawl is {fields.get('state')}" + (f": {reason}" if reason else "")
        case EventKind.WORKER:
            return f"{fields.get('worker')} has {fields.get('what')}; pages: {fields.get('pages', 0):,}"
        case EventKind.LANE:
            many = f" and {int(fields['lanes']) - 1:,} more are" if int(fields.get("lanes", 1)) > 1 else " is"
            seconds = format_duration(float(fields.get("seconds", 0)))
            return f"{fields.get('lane')}{many} held for {seconds}: {fields.get('reason')}"
        case EventKind.OPERATOR:
            by = fields.pop("by", "") or "an operator"
            action = fields.pop("action", "")
            rest = ", ".join(f"{name}={value}" for name, value in fields.items())
            return f"{by}: {action}" + (f" ({rest})" if rest else "")


def describe_problem(problem: Problem) -> str:
    """What is wrong with a crawl, as a sentence without its name."""
    fields = problem.fields
    seconds = format_duration(float(fields.get("seconds", 0)))
    share, command = f"{float(fields.get('share', 0)):.0%}", fields.get("command", "")
    match problem.kind:
        case ProblemKind.UNREADABLE:
            return f"its store can't be read: {fields['reason']}"
        case ProblemKind.CUT_SHORT:
            return f"it was cut short with {fields['pages']:,} pages to do. Continue with: {command}"
        case ProblemKind.FAILED:
            return f"it stopped by itself: {fields['reason']}. Continue with: {command}"
        case ProblemKind.UNATTENDED:
            return f"its outputs are incomplete. Complete them with: {command}"
        case ProblemKind.NO_WORKERS:
            return "it runs, but no worker reports. Start one with: uttu worker FILE"
        case ProblemKind.SILENT_WORKERS:
            silent = format_count(int(fields["workers"]), "worker")
            return f"{silent} with pages in hand went silent, such as {fields['example']}"
        case ProblemKind.STALLED:
            return f"it has {fields['pages']:,} pages to do and finished none for {seconds}"
        case ProblemKind.ERRORS:
            return f"{share} of the pages of the last {seconds} failed"
        case ProblemKind.REFUSED:
            return f"sites refuse {share} of its requests with 403, 429 or 503"
        case ProblemKind.NO_ANSWER:
            return f"{share} of its requests get no answer"


def format_progress(progress: ProgressEstimate) -> str:
    """How far a crawl is: ``75 % of the known pages, 12.5/s, about 20 min left``."""
    parts = [f"{progress.share:.1%} of the known pages"]
    parts += [f"{progress.rate:,.1f}/s"] if progress.rate else []
    parts += [f"about {format_duration(progress.estimate)} left"] if progress.estimate is not None else []
    return ", ".join(parts)
