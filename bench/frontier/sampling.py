"""How the cost of a URL is sampled; the same for every store.

A store is filled to a size. Then the next new URLs are put, known ones picked at random
are put again, and pages are taken and ended, in turn and in batches: the mean of each is a row's figure. Making the
requests that are put is not counted. Beside the time on the clock, which also counts what else the machine has to do,
stands the processor's: of this process and of the store's server, if it has one.

The peers' Python runs this too, so nothing of Uttu is imported.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

BATCH, SAMPLE = 1000, 50_000


class Measured(Protocol):
    """A store as the sampling sees it. ``put`` and ``work`` are timed."""

    def make(self, numbers: Iterable[int]) -> list[Any]:
        """The requests of these numbers."""

    def fill(self, requests: Sequence[Any]) -> None:
        """Put requests by the quickest way that leaves the same data."""

    def put(self, requests: Sequence[Any]) -> int:
        """Put requests; returns how many were new."""

    def work(self, count: int) -> int:
        """Take so many pages and end them; returns how many there were."""

    def size(self) -> int:
        """Bytes in use."""

    def cpu(self) -> float:
        """Seconds of processor time used up to now."""


def sampled(store: Measured, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A row for each size: microseconds for each thing, and bytes per URL."""
    rng = random.Random(1)
    empty, count, taken = store.size(), 0, 0
    for size in sizes:
        began, filled = time.monotonic(), size - count
        if filled <= 0:
            raise SystemExit(f"sizes must grow by more than {SAMPLE:,}, which are put to take the sample")
        fill(store, count, size)
        count = size
        seconds = time.monotonic() - began
        # While everything that was put is still there, but for the pages taken at smaller sizes.
        used = (store.size() - empty) / (count - taken)
        spent = {"new": Spent(), "known": Spent(), "lease_settle": Spent()}
        for _ in range(SAMPLE // BATCH):
            known = store.make(rng.sample(range(count), BATCH))
            fresh = store.make(range(count, count + BATCH))
            spent["new"].add(store, store.put, fresh, BATCH)
            spent["known"].add(store, store.put, known, 0)
            spent["lease_settle"].add(store, store.work, BATCH, BATCH)
            count += BATCH
            taken += BATCH
        row: dict[str, Any] = {"seen": size}
        for name, each in spent.items():
            row[f"{name}_us"] = round(each.clock / SAMPLE * 1e6, 2)
            row[f"{name}_cpu_us"] = round(each.processor / SAMPLE * 1e6, 2)
        row |= {"bytes_per_url": round(used, 1), "fill_us": round(seconds / filled * 1e6, 1)}
        print(row, file=sys.stderr, flush=True)
        yield row


def weighed(store: Measured, urls: int) -> float:
    """Bytes per URL of a store that is filled with so many, all queued and seen."""
    empty = store.size()
    fill(store, 0, urls)
    return round((store.size() - empty) / urls, 1)


def fill(store: Measured, first: int, end: int) -> None:
    for number in range(first, end, BATCH):
        store.fill(store.make(range(number, min(number + BATCH, end))))


class Spent:
    """Seconds that one kind of step took, together."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.processor = 0.0

    def add(self, store: Measured, step: Callable[[Any], int], argument: Any, expected: int) -> None:
        processor, clock = store.cpu(), time.perf_counter()
        result = step(argument)
        self.clock += time.perf_counter() - clock
        self.processor += store.cpu() - processor
        if result != expected:
            raise SystemExit(f"{step.__qualname__} gave {result}, not {expected}: the result does not count")


def cpu_of(server: int | None) -> float:
    """Seconds of processor time that this process has used, and the main thread of the server with this pid."""
    if server is None:
        return time.process_time()
    with open(f"/proc/{server}/schedstat") as file:
        return time.process_time() + int(file.read().split()[0]) / 1e9
