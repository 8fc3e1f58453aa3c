"""What one worker has done, in numbers; reported to the store every second, shown by ``weft status``."""

from __future__ import annotations

from collections import Counter

import msgspec

# How many hosts' latencies are kept; the slowest of these are shown.
_MOST_HOSTS = 2000
# Of how many pages that were given back the URLs are kept.
_MOST_GIVEN_BACK = 100


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a worker's :class:`Stats`, as it is stored."""

    pid: int = 0
    started: float = 0.0
    fetched: int = 0
    pages: int = 0
    items: int = 0
    retries: int = 0
    refused: int = 0
    """Outcomes that came too late: their leases were lost."""
    bytes: int = 0
    in_flight: int = 0
    held: int = 0
    concurrency: int = 0
    dead: dict[str, int] = {}
    statuses: dict[str, int] = {}
    slowest: list[tuple[str, float]] = []
    flying: list[str] = []
    """Some of what is in flight, the oldest first."""
    given_back: list[str] = []
    """What was in flight when the worker had to end, and is to be done again."""


class Stats:
    """Counters of one worker. Latencies are moving averages per lane."""

    def __init__(self) -> None:
        self.fetched = 0
        self.pages = 0
        self.items = 0
        self.retries = 0
        self.refused = 0
        self.bytes = 0
        self.dead: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.failed = 0
        self.given_back: list[str] = []
        self._latency: dict[str, float] = {}

    def fetched_one(self, lane: str, status: int, size: int, elapsed: float) -> None:
        self.fetched += 1
        self.bytes += size
        self.statuses[status] += 1
        known = self._latency.get(lane)
        if known is None and len(self._latency) >= _MOST_HOSTS:
            del self._latency[next(iter(self._latency))]
        self._latency[lane] = elapsed if known is None else known + 0.2 * (elapsed - known)

    def gave_back(self, url: str) -> None:
        if url not in self.given_back and len(self.given_back) < _MOST_GIVEN_BACK:
            self.given_back.append(url)

    def slowest(self, count: int = 5) -> list[tuple[str, float]]:
        return sorted(self._latency.items(), key=lambda pair: -pair[1])[:count]

    def report(
        self, *, pid: int, started: float, in_flight: int, flying: list[str], held: int, concurrency: int
    ) -> Report:
        return Report(
            pid=pid, started=started, fetched=self.fetched, pages=self.pages, items=self.items, retries=self.retries,
            refused=self.refused, bytes=self.bytes, in_flight=in_flight, held=held, concurrency=concurrency,
            dead=dict(self.dead), statuses={str(status): count for status, count in self.statuses.items()},
            slowest=self.slowest(), flying=flying, given_back=self.given_back,
        )  # fmt: skip
