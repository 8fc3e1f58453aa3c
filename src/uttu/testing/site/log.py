"""The log of the site: one record per request. Tests compare a crawler's behaviour with it.

Times are ``time.monotonic()``, which on Linux is the same clock for all processes, so times of the server can be
compared with those of a client. The file has a JSON line per record, written in batches of ``_BATCH_SECONDS``. A
request that is still being answered when its batch is written gets a second line with the same ``id`` when it ends; the
later line counts. If the server is killed between two batches, the last records are missing, but every line is correct.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

_BATCH_SECONDS: Final = 0.02


class Record(msgspec.Struct, gc=False, omit_defaults=True):
    """A request whose head has arrived.

    - ``time`` is taken as soon as the bytes are read.
    - ``ended`` is taken just before the last byte of the answer is handed to the system. A client cannot see the end
      earlier, so two consecutive requests never seem to overlap.
    - ``lost`` is set instead if the connection was lost.
    - ``path`` is the target as it was sent. ``status`` is 0 until a status line is sent.
    - ``connection`` is a number over all hosts.
    """

    id: int
    time: float
    host: str
    method: str
    path: str
    connection: int
    status: int = 0
    ended: float | None = None
    lost: float | None = None


class Log:
    """Collects records in a list, a file, or both.

    :param keep: False for a long-running process: records go to the file only, so that memory does not grow.
    """

    def __init__(self, path: Path | None = None, *, keep: bool = True) -> None:
        self.records: list[Record] = []
        self._keep = keep
        self._count = 0
        self._written = 0  # records with a lower id have a line in the file
        self._fresh: list[Record] = []
        self._file = path.open("ab", buffering=0) if path else None
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._encode_lines = msgspec.json.Encoder().encode_lines

    def begin(self, time: float, host: str, method: str, path: str, connection: int) -> Record:
        record = Record(self._count, time, host, method, path, connection)
        self._count += 1
        if self._keep:
            self.records.append(record)
        if self._file:
            self._note(record)
        if self._waiters:
            self._wake()
        return record

    def end(self, record: Record) -> None:
        record.ended = monotonic()
        self._changed(record)

    def lose(self, record: Record) -> None:
        record.lost = monotonic()
        self._changed(record)

    async def until(self, condition: Callable[[list[Record]], bool]) -> None:
        """Wait until ``condition`` is true for the kept records. It is checked after every change."""
        while not condition(self.records):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def flush(self) -> None:
        """Write the records that are not in the file yet."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._file and self._fresh:
            self._file.write(self._encode_lines(self._fresh))
            self._fresh.clear()
        self._written = self._count if self._file else 0

    def close(self) -> None:
        self.flush()
        if self._file:
            self._file.close()
            self._file = None

    def _changed(self, record: Record) -> None:
        if record.id < self._written:
            self._note(record)
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def _note(self, record: Record) -> None:
        self._fresh.append(record)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_BATCH_SECONDS, self.flush)


class LogReader:
    """Reads a log file while it is being written. Each call reads only the new lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0  # bytes
        self._records: dict[int, Record] = {}

    def records(self) -> list[Record]:
        """All records so far, in the order of arrival. A line that is still being written is left out."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            lines, end, _ = file.read().rpartition(b"\n")
        self._read += len(lines) + len(end)
        for record in _decode_lines(lines):
            self._records[record.id] = record
        return list(self._records.values())


_decode_lines: Final = msgspec.json.Decoder(Record).decode_lines


def gaps(records: Iterable[Record]) -> dict[str, list[float]]:
    """Seconds between successive requests, by host."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for record in records:
        times[record.host].append(record.time)
    gaps_by_host: dict[str, list[float]] = {}
    for host, moments in times.items():
        moments.sort()
        gaps_by_host[host] = [later - earlier for earlier, later in pairwise(moments)]
    return gaps_by_host


def fetches(records: Iterable[Record]) -> Counter[tuple[str, str]]:
    """The number of requests for each (host, path)."""
    return Counter((record.host, record.path) for record in records)


def overlaps(records: Iterable[Record]) -> dict[str, int]:
    """The largest number of simultaneous requests, by host."""
    events: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for record in records:
        end = record.ended if record.ended is not None else record.lost
        events[record.host].append((record.time, 1))
        events[record.host].append((float("inf") if end is None else end, -1))
    peaks: dict[str, int] = {}
    for host, moments in events.items():
        running = peak = 0
        # After sorting, an end comes before a beginning at the same time.
        for _, change in sorted(moments):
            running += change
            peak = max(peak, running)
        peaks[host] = peak
    return peaks
