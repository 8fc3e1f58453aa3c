"""Read the history of a crawl: rates over time, made of its samples, and what happened in it.

Samples hold totals, so a point of a curve is the difference of two samples. The totals fall if a crawl was moved, which
leaves the workers' reports behind; a difference is never less than 0.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from uttu.engine.history import make_sample
from uttu.frontier.catalog import CrawlStore
from uttu.model.history import LATENCY_BOUNDS, RESOLUTIONS, SAMPLE_SECONDS, CrawlEvent, CrawlSample, EventKind
from uttu.operations import Report
from uttu.operations.crawls import CrawlStatus, select_crawl

# A gap between two samples that is longer than this many distances of the finest kept resolution is one: no worker ran.
_GAP_SLOTS: Final = 3.5


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of a crawl over ``seconds`` that end at ``at`` (Unix time). All rates are per second.

    Latencies are in seconds, None if nothing was fetched. ``statuses`` has the rate of each class of answers: ``2xx``,
    ``3xx`` …, and ``none`` for no answer.
    """

    at: float
    seconds: float
    pages: float = 0.0
    items: float = 0.0
    errors: float = 0.0
    """Requests that became dead."""
    retries: float = 0.0
    bytes: float = 0.0
    latency_mean: float | None = None
    latency_p50: float | None = None
    latency_p95: float | None = None
    statuses: dict[str, float] = {}
    pending: int = 0
    """Requests that were neither done nor dead at the end of this time."""
    workers: int = 0


class CrawlHistory(msgspec.Struct, frozen=True):
    """The rates of a crawl over time, the oldest point first. Between points may be gaps in which it did not run."""

    points: list[HistoryPoint]


async def read_history(
    crawl: str, frontier: str, seconds: float, points: int, report: Report, folder: Path = Path()
) -> CrawlHistory:
    """The rates of a crawl over the last ``seconds``, in at most ``points`` points.

    :raises StoreError: the store can't be reached, or has no such crawl.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        samples = await read_samples(found.store, await found.status(), seconds)
    return CrawlHistory(make_points(samples, seconds, points))


async def read_recent_samples(
    crawl: str, frontier: str, seconds: float, report: Report, folder: Path = Path()
) -> list[CrawlSample]:
    """The samples of a crawl of the last ``seconds``, to judge it with :mod:`uttu.operations.diagnosis`.

    :raises StoreError: the store can't be reached, or has no such crawl.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        return await read_samples(found.store, await found.status(), seconds)


async def read_samples(store: CrawlStore, status: CrawlStatus, seconds: float) -> list[CrawlSample]:
    """The samples of the last ``seconds``, the one before, and the present numbers as the last one."""
    now = time.time()
    since = now - seconds
    longest = next((distance for distance, age in RESOLUTIONS if seconds <= age), RESOLUTIONS[-1][0])
    samples = await store.history.samples(since - 2 * longest)
    present = make_sample(now if status.alive else status.active, status.counts, status.workers.values())
    if not samples or present.at - samples[-1].at >= 1:
        samples.append(present)
    elif present.done + present.dead > samples[-1].done + samples[-1].dead:
        # The last sample of a run is dated to the next slot, and a run that follows may end before that.
        samples.append(msgspec.structs.replace(present, at=samples[-1].at + 1))
    first = next((number for number, each in enumerate(samples) if each.at >= since), len(samples))
    return samples[max(first - 1, 0) :]


def make_points(samples: Sequence[CrawlSample], seconds: float, points: int) -> list[HistoryPoint]:
    """Make at most ``points`` points of samples. Samples are grouped by time, each group becomes a point."""
    if len(samples) < 2:
        return []
    width = max(seconds / max(points, 1), SAMPLE_SECONDS / 2)
    chosen = [samples[0]]
    for before, each, following in zip(samples, samples[1:], [*samples[2:], None], strict=False):
        # The last sample of each slot, and both sides of a gap.
        is_last = following is None or int(following.at // width) != int(each.at // width)
        if is_last or _is_gap(before, each) or (following is not None and _is_gap(each, following)):
            chosen.append(each)
    made = [
        make_point(before, after)
        for before, after in itertools.pairwise(chosen)
        if after.at > before.at and not _is_gap(before, after)
    ]
    return made[-points:]


def _is_gap(before: CrawlSample, after: CrawlSample) -> bool:
    """Whether no sample was taken in between, although the history would have kept one: no process was at work."""
    age = time.time() - before.at
    distance = next((distance for distance, kept in RESOLUTIONS if age <= kept), RESOLUTIONS[-1][0])
    return after.at - before.at > _GAP_SLOTS * distance and after.done == before.done and after.dead == before.dead


def make_point(before: CrawlSample, after: CrawlSample) -> HistoryPoint:
    """The rates between two samples."""
    seconds = after.at - before.at
    fetched = after.fetched - before.fetched
    latency = [max(new - old, 0) for new, old in zip(after.latency, _pad(before.latency, after), strict=True)]
    statuses: dict[str, float] = {}
    for status, count in after.statuses.items():
        name = f"{status[0]}xx" if status != "0" else "none"
        statuses[name] = statuses.get(name, 0.0) + max(count - before.statuses.get(status, 0), 0) / seconds
    return HistoryPoint(
        at=after.at,
        seconds=seconds,
        pages=max(after.done - before.done, 0) / seconds,
        items=max(after.items - before.items, 0) / seconds,
        errors=max(after.dead - before.dead, 0) / seconds,
        retries=max(after.retries - before.retries, 0) / seconds,
        bytes=max(after.bytes - before.bytes, 0) / seconds,
        latency_mean=max(after.seconds - before.seconds, 0) / fetched if fetched > 0 else None,
        latency_p50=estimate_quantile(latency, 0.5),
        latency_p95=estimate_quantile(latency, 0.95),
        statuses={name: rate for name, rate in sorted(statuses.items()) if rate},
        pending=after.pending + after.leased + after.delayed,
        workers=after.workers,
    )


def _pad(latency: tuple[int, ...], like: CrawlSample) -> tuple[int, ...]:
    return latency if len(latency) == len(like.latency) else (0,) * len(like.latency)


def estimate_quantile(latency: Sequence[int], share: float) -> float | None:
    """The latency below which ``share`` of the fetches are, interpolated in the histogram; None if it is empty."""
    total = sum(latency)
    if not total:
        return None
    sums = []
    so_far = 0
    for count in latency:
        so_far += count
        sums.append(so_far)
    slot = bisect_left(sums, share * total)
    low = LATENCY_BOUNDS[slot - 1] if slot else 0.0
    high = LATENCY_BOUNDS[slot] if slot < len(LATENCY_BOUNDS) else 2 * LATENCY_BOUNDS[-1]
    within = (share * total - (sums[slot] - latency[slot])) / latency[slot]
    return low + (high - low) * within


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for a page of events, the latest first. ``before``: the ``next`` of the page before; 0 for the first."""

    limit: int = 50
    before: int = 0
    kind: EventKind | None = None


class EventPage(msgspec.Struct, frozen=True):
    """Events of a crawl, the latest first. ``next`` is the ``before`` of the next page, 0 at the end."""

    events: list[CrawlEvent]
    next: int = 0


# Events that one step of a search by kind reads.
_EVENT_STEP: Final = 500


async def read_event_page(
    crawl: str, frontier: str, query: EventQuery, report: Report, folder: Path = Path()
) -> EventPage:
    """A page of the events of a crawl, the latest first.

    :raises StoreError: the store can't be reached, or has no such crawl.
    """
    found: list[CrawlEvent] = []
    before = query.before
    # One more than asked for tells whether there is a next page.
    wanted = query.limit + 1
    async with select_crawl(crawl, frontier, report, folder) as handle:
        while len(found) < wanted:
            step = wanted if query.kind is None else _EVENT_STEP
            read = await handle.store.history.events(-1, step, before)
            found += [event for event in reversed(read) if query.kind in (None, event.kind)]
            if len(read) < step:
                break
            before = read[0].position
    page = found[: query.limit]
    return EventPage(page, page[-1].position if page and len(found) > query.limit else 0)


async def read_events(
    crawl: str, frontier: str, after: int, limit: int, report: Report, folder: Path = Path()
) -> list[CrawlEvent]:
    """Up to ``limit`` events of a crawl after position ``after``, the oldest first; the latest ones if it is -1.

    :raises StoreError: the store can't be reached, or has no such crawl.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        return await found.store.history.events(after, limit)
