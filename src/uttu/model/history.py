"""The history of a crawl as values: samples of its numbers over time, and events.

Samples hold cumulative numbers, so the rate between two samples is a difference, and any sample can be dropped without
losing anything but detail. That is how a history stays bounded: :data:`RESOLUTIONS` says how long samples of each
distance are kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

SAMPLE_SECONDS: Final = 10
"""The finest distance of two samples."""
RESOLUTIONS: Final = ((SAMPLE_SECONDS, 2 * 3600), (60, 24 * 3600), (900, 60 * 24 * 3600))
"""Pairs of seconds: the distance of samples, and how long samples of this distance are kept."""
LATENCY_BOUNDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper bounds of the latency histogram in seconds. A histogram has one more count, for everything above."""
MOST_EVENTS: Final = 2000
"""How many events of a crawl are kept: the latest."""


class CrawlSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The numbers of a crawl at one moment. All but the first three and ``workers`` are totals since its start."""

    at: float
    """Unix time."""
    pending: int = 0
    leased: int = 0
    delayed: int = 0
    workers: int = 0
    done: int = 0
    dead: int = 0
    items: int = 0
    bytes: int = 0
    fetched: int = 0
    retries: int = 0
    seconds: float = 0.0
    """The sum of all fetch times. The mean latency between two samples is the difference divided by that of fetched."""
    latency: tuple[int, ...] = ()
    """Fetches by duration; see :data:`LATENCY_BOUNDS`. Empty if unknown."""
    statuses: dict[str, int] = {}
    """Fetches by status code."""


class EventKind(StrEnum):
    """What an event is about."""

    STATE = "state"
    """The state of the crawl changed. Fields: state, reason."""
    WORKER = "worker"
    """A worker joined or left. Fields: worker, what, pid, pages, items."""
    LANE = "lane"
    """A lane is held. Fields: lane, seconds, reason."""
    OPERATOR = "operator"
    """An operator did something. Fields: by, action, and what it was done to."""


class CrawlEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that happened in a crawl.

    ``position`` is the store's time in microseconds, and grows with each event of a crawl.
    """

    position: int
    at: float
    kind: EventKind
    fields: dict[str, str | int | float] = {}


def thin_out(times: Sequence[float], now: float) -> list[float]:
    """Return the times of the samples to drop. ``times`` are in ascending order.

    In each slot of a resolution the first sample stays: it is also the first in a slot of the next resolution, so
    thinning out early or often gives the same samples. What is older than the longest resolution is dropped. The
    latest sample always stays: it holds the totals of a crawl that ended.
    """
    dropped: list[float] = []
    end = len(times) - 1
    for distance, longest in RESOLUTIONS:
        start = bisect_left(times, now - longest, hi=max(end, 0))
        slots = [at // distance for at in times[start:end]]
        dropped += [
            at for at, slot, former in zip(times[start + 1 : end], slots[1:], slots, strict=False) if slot == former
        ]
        end = start
    return [*times[:end], *dropped] if end > 0 else dropped
