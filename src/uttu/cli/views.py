"""Views of ``uttu status`` and ``uttu why``: crawls, lanes, dead letters and explanations of URLs.

Every view has two forms: text for people, drawn on a :class:`~uttu.cli.output.Screen`, and JSON with the same facts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from uttu.cli.history import describe_problem, format_progress
from uttu.cli.output import (
    Screen,
    format_age,
    format_count,
    format_duration,
    format_kinds,
    format_moment,
    format_size,
    print_json,
    say,
)
from uttu.model.crawl import CrawlState, ReasonKind, WorkerReport
from uttu.model.inspection import DeadGroup, DeadQuery, LaneFilter, LanePage, LaneQuery
from uttu.model.lease import DeadKind, DeadLetter, LaneState, RequestState
from uttu.operations.crawls import BrokenState, CrawlDetails, CrawlList, CrawlStatus, DeadLetters
from uttu.operations.diagnosis import Problem, ProgressEstimate
from uttu.operations.explanation import UrlExplanation

_TOP_LANES = 5  # below the status of one crawl
_JSON_LANES = 20
# Workers that are gone leave their last report. Show this many of them.
_TOP_GONE = 5


def show_all(found: CrawlList, problems: Sequence[Problem], as_json: bool) -> None:
    if as_json:
        wrong = {each.name: [problem for problem in problems if problem.crawl == each.name] for each in found.crawls}
        print_json([{**_status_dict(each), "problems": wrong[each.name]} for each in found.crawls])
        return
    if not found.crawls:
        where = f"at {found.address}" if found.address else "in this folder"
        say(f"no crawl was started {where}. Begin with: uttu new NAME URL, or watch one: uttu demo")
        return
    now = time.time()
    Screen().table(
        ("crawl", "state", "pages", "items", "to do", "dead", "active", "reason"),
        [
            (
                each.name,
                each.state,
                f"{each.counts.done:,}",
                f"{each.counts.items:,}",
                f"{each.counts.work:,}",
                f"{each.counts.dead:,}",
                format_age(now - each.active) if each.active else "",
                str(each.reason),
            )
            for each in found.crawls
        ],
        numbers=("pages", "items", "to do", "dead"),
    )
    # On standard error, so that standard output stays a table.
    for problem in problems:
        say(f"{problem.crawl}: {describe_problem(problem)}")


def show_one(found: CrawlDetails, progress: ProgressEstimate, problems: Sequence[Problem], as_json: bool) -> None:
    standing, kinds, lanes, trimmed = found.status, found.dead_kinds, found.lanes, found.trimmed
    if as_json:
        shown = [_lane_dict(lane) for lane in lanes.lanes[:_JSON_LANES]]
        more = {
            "dead_kinds": kinds,
            "trimmed": trimmed,
            "progress": progress,
            "problems": list(problems),
            "lanes": shown,
        }
        print_json({**_status_dict(standing), **more})
        return
    counts, screen = standing.counts, Screen()
    dead = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    screen.marked(standing.state, f"  {standing.name}{standing.how}")
    rows = [
        ("pages", f"{counts.done:,} done, {counts.dead:,} dead" + (f": {dead} (--dead)" if dead else "")),
        ("items", f"{counts.items:,}" + _kept(counts.items, trimmed)),
        ("received", format_size(counts.bytes)),
        ("to do", f"{counts.pending:,} pending, {counts.leased:,} leased, {counts.delayed:,} delayed"),
    ]
    if standing.alive and counts.seen:
        rows.insert(1, ("progress", format_progress(progress)))
    if problems:
        rows.append(("problems", "\n".join(map(describe_problem, problems))))
    if waits := _describe_waits(standing, lanes.lanes, found.held):
        rows.append(("waits for", "\n".join(waits)))
    if command := _resume_command(standing):
        rows.append(("go on", command))
    screen.pairs(rows)
    if standing.workers:
        screen.line()
        _show_workers(standing, screen)
    if lanes.lanes:
        screen.line()
        _show_lanes(lanes.lanes[:_TOP_LANES], screen)
        if (total := _count_lanes(lanes)) > _TOP_LANES:
            screen.line(f"and {format_count(total - _TOP_LANES, 'more lane')} (--lanes)", "dim")


def _count_lanes(page: LanePage) -> int:
    """How many lanes there are: all that match if the store knows it, otherwise those of the page."""
    return len(page.lanes) if page.total is None else page.total


def show_lanes(page: LanePage, query: LaneQuery, as_json: bool) -> None:
    if as_json:
        print_json([_lane_dict(lane) for lane in page.lanes])
        return
    if page.lanes:
        _show_lanes(page.lanes, Screen())
    elif query.match or query.only is not LaneFilter.ALL:
        say("no such lane")
    else:
        say("no lane has pages waiting")
    if page.next and (query.match or query.only is not LaneFilter.ALL):
        say(f"the first {len(page.lanes):,}{'' if page.total is None else f' of {page.total:,}'}; -n 0 lists all")


def _kept(items: int, trimmed: int) -> str:
    """How many items are still in the store, if some were removed after the outputs took them."""
    if not trimmed:
        return ""
    return f": the latest {items - trimmed:,} are in the store, {trimmed:,} are in the outputs only (keep_items)"


def _resume_command(standing: CrawlStatus) -> str:
    """The command that resumes the crawl; empty if none is needed."""
    if standing.state == CrawlState.PAUSED and standing.alive:
        return standing.words("resume", standing.name)
    if standing.reason.kind is ReasonKind.MOVED:
        return ""
    return (
        standing.command() if standing.state in (BrokenState.CUT_SHORT, CrawlState.STOPPED, CrawlState.PAUSED) else ""
    )


def _describe_waits(standing: CrawlStatus, lanes: Sequence[LaneState], held: LanePage) -> list[str]:
    """The things that a crawl waits for before it can end, as phrases."""
    counts, found = standing.counts, []
    living = [report for _, report in standing.living.values()]
    if standing.state == CrawlState.PAUSED:
        found.append("the operator, who paused it")
    elif standing.alive and not living:
        found.append("workers: none has reported lately")
    if standing.alive and not standing.facts.seeded:
        found.append("its start URLs, which are not all read yet")
    if standing.feed:
        found.append(f"{format_count(standing.feed, 'start URL')} that were pushed and not taken in yet")
    if counts.leased and living:
        flying = sum(report.in_flight for report in living)
        found.append(
            f"{format_count(counts.leased, 'page')} with {format_count(len(living), 'worker')}, "
            f"{flying} of them in flight"
        )
    elif counts.leased:
        found.append(
            f"{format_count(counts.leased, 'page')} of workers that are gone; "
            "they are queued again when the crawl resumes"
        )
    if counts.delayed:
        found.append(f"{format_count(counts.delayed, 'page')} to be retried later")
    shown = [lane for lane in held.lanes if lane.pending or lane.active][:3]
    found += [f"{lane.name}, held for {format_duration(lane.wait)} more: {lane.reason}" for lane in shown]
    if len(shown) == 3 and (more := _count_lanes(held) - 3) > 0:
        found.append(f"{format_count(more, 'more lane')} that are held (--lanes)")
    soonest = min((lane.wait for lane in lanes if lane.pending), default=0.0)
    if soonest > 1 and not shown and standing.state == CrawlState.RUNNING:
        found.append(f"the next lane to be due, in {format_duration(soonest)}")
    return found


def _show_workers(standing: CrawlStatus, screen: Screen) -> None:
    now = time.time()
    rows, living = [], standing.living
    gone = len(standing.workers) - len(living)
    by_age = sorted(standing.workers.items(), key=lambda pair: (pair[0] not in living, pair[1][0]))
    works = "paused" if standing.state == CrawlState.PAUSED else "working"
    for name, (age, report) in by_age[: len(living) + _TOP_GONE]:
        worked = now - age - report.started
        rows.append(
            (
                name,
                works if name in living else "gone",
                format_age(age),
                str(report.pid),
                str(report.in_flight),
                str(report.held),
                f"{report.pages:,}",
                f"{report.pages / worked:,.1f}/s" if worked > 0 else "",
            )
        )
    numbers = ("pid", "in flight", "held", "pages", "on average")
    screen.table(("worker", "is", "reported", *numbers), rows, numbers)
    if gone > _TOP_GONE:
        screen.line(f"and {gone - _TOP_GONE:,} more that are gone", "dim")


def _show_lanes(lanes: Sequence[LaneState], screen: Screen) -> None:
    screen.table(
        ("lane", "pending", "out", "so far", "pace", "due", "held because"),
        [
            (
                lane.name,
                f"{lane.pending:,}",
                f"{lane.active:,}",
                f"{lane.total:,}",
                format_pace(lane),
                format_age(-lane.wait),
                lane.reason if lane.wait > 0 else "",
            )
            for lane in lanes
        ],
        numbers=("pending", "out", "so far"),
    )


def format_pace(lane: LaneState) -> str:
    """The pace of a lane: ``every 0.5 s``, ``4 at once``, ``every 2 s (set by the operator)`` …"""
    parts = [f"every {format_duration(lane.pace.delay)}"] if lane.pace.delay else []
    if lane.pace.limit > 1 or (lane.pace.limit and not parts):
        parts.append(f"{lane.pace.limit} at once")
    return (", ".join(parts) or "any") + (" (set by the operator)" if lane.pinned else "")


def _status_dict(standing: CrawlStatus) -> dict[str, Any]:
    workers = {name: _worker_dict(age, report) for name, (age, report) in standing.workers.items()}
    return {
        "crawl": standing.name,
        "state": standing.state,
        "reason": str(standing.reason),
        "supervised": standing.supervised,
        "alive": standing.alive,
        "active": standing.active,
        "file": standing.facts.file,
        "counts": msgspec.structs.asdict(standing.counts),
        "feed": standing.feed,
        "workers": workers,
    }


def _worker_dict(age: float, report: WorkerReport) -> dict[str, Any]:
    """The report of a worker without its log, which ``uttu workers`` shows."""
    fields = {"age": age, **msgspec.structs.asdict(report)}
    del fields["log"]
    return fields


def _lane_dict(lane: LaneState) -> dict[str, Any]:
    return {**msgspec.structs.asdict(lane), "pace": {"delay": lane.pace.delay, "limit": lane.pace.limit}}


def show_dead_groups(groups: Sequence[DeadGroup], as_json: bool) -> None:
    """Show how many dead letters there are of each kind and message."""
    if as_json:
        print_json(groups)
    elif groups:
        Screen().table(
            ("count", "kind", "message", "latest", "for example"),
            [
                (f"{each.count:,}", each.kind, each.message, format_age(time.time() - each.last), each.sample)
                for each in groups
            ],
            numbers=("count",),
        )
    else:
        say("no dead letters")


def show_dead_letters(found: DeadLetters, query: DeadQuery, detail: bool, as_json: bool) -> None:
    """Show the latest dead letters that were asked for."""
    letters, kinds, kind = found.letters, found.kinds, query.kind
    is_search = bool(query.match or query.message)
    if as_json:
        print_json([_dead_letter_dict(letter) for letter in letters])
        return
    if not letters:
        say(
            f"no dead letters of kind {kind!r}; there are: {format_kinds(kinds)}"
            if kind and kinds and not is_search
            else "no such dead letter"
            if is_search
            else "no dead letters"
        )
        return
    (_show_details if detail else _show_table)(letters, Screen())
    total = kinds.get(kind, 0) if kind else sum(kinds.values())
    if is_search and found.next:
        say(f"the latest {len(letters):,}; -n 0 lists all")
    elif not is_search and total > len(letters):
        say(f"the latest {len(letters):,} of {total:,}; -n 0 lists all")


def _show_table(letters: Sequence[DeadLetter], screen: Screen) -> None:
    screen.table(
        ("when", "kind", "tries", "url", "reason"),
        [
            (format_age(time.time() - each.at), each.kind, str(each.attempt), _format_request(each), each.reason)
            for each in letters
        ],
        numbers=("tries",),
    )


def _show_details(letters: Sequence[DeadLetter], screen: Screen) -> None:
    for letter in letters:
        screen.marked(letter.kind, f"  {_format_request(letter)}")
        screen.line(f"  {letter.reason}  ({format_moment(letter.at)}, {format_count(letter.attempt, 'try', 'tries')})")
        for line in letter.detail.splitlines():
            screen.line(f"    {line}", "dim")


def _format_request(letter: DeadLetter) -> str:
    request = letter.request
    return request.url if request.method == "GET" else f"{request.method} {request.url}"


def _dead_letter_dict(letter: DeadLetter) -> dict[str, Any]:
    fields = msgspec.structs.asdict(letter)
    del fields["request"]
    return {"url": letter.request.url, "method": letter.request.method, **fields}


def show_explanation(found: Sequence[UrlExplanation], standing: CrawlStatus) -> None:
    screen = Screen()
    for fate in found:
        head, *rest = _describe(fate, standing)
        screen.line(fate.url, "bold")
        screen.marked(fate.trace.state, head, indent="  ")
        for text in rest:
            screen.line(f"  {text}")
        for text in fate.trace.detail.splitlines():
            screen.line(f"    {text}", "dim")
        if fate.trace.state is RequestState.DEAD and fate.trace.kind != DeadKind.ROBOTS:
            # robots.txt would forbid the page again, so don't suggest a retry.
            screen.line(f"  retry it with: {standing.words('retry', standing.name, '--url', fate.url)}")


def print_explanation(found: Sequence[UrlExplanation], standing: CrawlStatus) -> None:
    """Print the first URL with all its facts, and the URLs that it redirected to below ``then``."""
    first, *others = [_explanation_dict(fate, standing) for fate in found]
    print_json({"crawl": standing.name, **first, "then": others})


def _describe(fate: UrlExplanation, standing: CrawlStatus) -> list[str]:
    """The rest of the line that begins with the state, and the lines below it."""
    trace = fate.trace
    match trace.state:
        case RequestState.DONE:
            return _describe_done(fate)
        case RequestState.DEAD:
            status = f", status {trace.status}" if trace.status else ""
            tries = format_count(trace.attempt, "try", "tries")
            return [f" {format_moment(trace.at)}, after {tries}{status}", f"{trace.kind}: {trace.reason}"]
        case RequestState.DELAYED:
            return [
                f": to be tried again at {format_moment(trace.due)}, "
                f"after {format_count(trace.attempt, 'try', 'tries')}",
                trace.reason,
                *_describe_standstill(standing),
            ]
        case RequestState.LEASED:
            return [f" by {trace.worker} until {format_moment(trace.due)}", _describe_worker(trace.worker, standing)]
        case RequestState.PENDING:
            return _describe_pending(fate, standing)
        case RequestState.UNKNOWN:
            return [f" to the crawl {standing.name}", *fate.guesses, *(f"but it knows {url}" for url in fate.known_as)]


def _describe_done(fate: UrlExplanation) -> list[str]:
    trace = fate.trace
    if not trace.at:
        return [", but nothing more is known of it"]
    facts = (
        [f"status {trace.status}", format_size(trace.size)] if trace.status else []
    )  # no status: the page was not fetched
    if not fate.target:
        facts += [format_count(trace.links, "new link"), format_count(trace.items, "item")]
    note = _describe_note(fate)
    return [f" {format_moment(trace.at)}: {', '.join(facts)}", *([note] if note else [])]


def _describe_note(fate: UrlExplanation) -> str:
    """The reason of a request, or where a page that is done redirected to."""
    redirect = fate.trace.redirect
    if redirect is None:
        return fate.trace.reason
    refused = f", which is not fetched: {redirect.refused}" if redirect.refused else ""
    return f"redirected to {redirect.target}{refused}"


def _describe_pending(fate: UrlExplanation, standing: CrawlStatus) -> list[str]:
    trace, lane = fate.trace, fate.lane
    before = f"{trace.ahead:,} before it" if trace.ahead else "the next one"
    lines = [f" in the lane {trace.lane}: {before}"]
    if lane is not None:
        lines.append(f"the lane is due {format_age(-lane.wait)}; its pace: {format_pace(lane)}")
        if lane.reason and lane.wait > 0:
            lines.append(f"held for {format_duration(lane.wait)} more because: {lane.reason}")
    if trace.attempt:
        lines.append(f"{format_count(trace.attempt, 'try', 'tries')} so far")
    return lines + _describe_standstill(standing)


def _describe_standstill(standing: CrawlStatus) -> list[str]:
    """Why the crawl starts no pages at all, and what to do about it; empty if it does."""
    if not standing.alive:
        # Without --resume, a crawl that ended at a limit starts anew.
        command = standing.command() + (" --resume" if standing.state == CrawlState.LIMITED else "")
        return [f"the crawl is not running ({standing.state}); go on with: {command}"]
    if standing.state == CrawlState.PAUSED:
        return [f"the crawl is paused; go on with: {standing.words('resume', standing.name)}"]
    if standing.state == CrawlState.STOPPING:
        return [f"the crawl is stopping{standing.how}, and starts no more pages"]
    return []


def _describe_worker(name: str, standing: CrawlStatus) -> str:
    age, report = standing.workers.get(name, (None, None))
    if age is None or report is None:
        return "that worker has not reported yet"
    if name in standing.living:
        return f"that worker is alive (process {report.pid})"
    return f"that worker is gone (last heard of {format_age(age)}); the page is queued again when the crawl resumes"


def _explanation_dict(fate: UrlExplanation, standing: CrawlStatus) -> dict[str, Any]:
    trace: dict[str, Any] = msgspec.structs.asdict(fate.trace)
    request = trace.pop("request")
    head, *rest = _describe(fate, standing)
    return {
        "url": fate.url,
        **trace,
        "reason": _describe_note(fate),
        "request": None if request is None else msgspec.structs.asdict(request),
        "guesses": fate.guesses,
        "known_as": fate.known_as,
        "words": [fate.trace.state + head, *rest],
    }
