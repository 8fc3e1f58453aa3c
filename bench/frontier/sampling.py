"""Samples the cost of a URL, in the same way for every store.

A store is filled to a size. Then new URLs are put, known ones picked at random are put again, and pages are taken and
finished, in turns and in batches. A row has the mean cost of each step. Making the requests is not counted. A cost is
measured as wall time, which depends on what else the machine does, and as CPU time, of this process and of the store's
server if it has one.

The peers' Python runs this too, so it imports nothing of Uttu.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

BATCH, SAMPLE = 1000, 50_000


class Store(Protocol):
    """A store to sample. ``put`` and ``work`` are timed."""

    def make(self, numbers: Iterable[int]) -> list[Any]:
        """Make the requests with these numbers."""

    def fill(self, requests: Sequence[Any]) -> None:
        """Put requests in the fastest way that leaves the same data."""

    def put(self, requests: Sequence[Any]) -> int:
        """Put requests. Returns the number of new ones."""

    def work(self, count: int) -> int:
        """Take up to ``count`` pages and finish them. Returns their number."""

    def size(self) -> int:
        """Bytes in use."""

    def cpu(self) -> float:
        """CPU seconds used until now."""


def sample(store: Store, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A row for each size: microseconds for each step, and bytes per URL."""
    rng = random.Random(1)
    empty, count, taken = store.size(), 0, 0
    for size in sizes:
        began, filled = time.monotonic(), size - count
        if filled <= 0:
            raise SystemExit(
                f"Each size must be larger than the one before by more than {SAMPLE:,}, the size of a sample"
            )
        fill(store, count, size)
        count = size
        seconds = time.monotonic() - began
        # All URLs that were put are still there, except the pages taken at smaller sizes.
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


def compute_bytes_per_url(store: Store, urls: int) -> float:
    """Bytes per URL of a store with ``urls`` URLs, all queued and seen."""
    empty = store.size()
    fill(store, 0, urls)
    return round((store.size() - empty) / urls, 1)


def fill(store: Store, first: int, end: int) -> None:
    for number in range(first, end, BATCH):
        store.fill(store.make(range(number, min(number + BATCH, end))))


class Spent:
    """Seconds that all steps of one kind took."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.processor = 0.0

    def add(self, store: Store, step: Callable[[Any], int], argument: Any, expected: int) -> None:
        processor, clock = store.cpu(), time.perf_counter()
        result = step(argument)
        self.clock += time.perf_counter() - clock
        self.processor += store.cpu() - processor
        if result != expected:
            raise SystemExit(
                f"{step.__qualname__} returned {result} instead of {expected}, so the result does not count"
            )


def read_cpu_seconds(server: int | None) -> float:
    """CPU seconds that this process has used, plus those of the main thread of the process with pid ``server``."""
    if server is None:
        return time.process_time()
    with open(f"/proc/{server}/schedstat") as file:
        return time.process_time() + int(file.read().split()[0]) / 1e9
