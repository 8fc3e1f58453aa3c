"""Pages of lanes on Redis, ordered by an index that is kept in this process for some seconds.

The lanes are a hash, which has no order. So all of them are read in chunks, and sorted. In a crawl with up to
``_FEW_LANES`` this is done for each page. In a larger one the index is used again: after ``_FRESH_SECONDS``, or
``_REST`` times as long as the last scan took, the next page starts a new scan, but doesn't wait for it unless the index
is older than ``_STALE_SECONDS``. The lanes of a page are read again in any case, so their numbers are those of now.

Long loops give way to other tasks after ``_STEP`` lanes.
"""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from uttu.errors import RefusedData, StoreError
from uttu.frontier.redis.crawl import RedisCrawl
from uttu.frontier.redis.records import LaneRecord, scan
from uttu.model import Pace
from uttu.model.inspection import LaneFilter, LanePage, LaneQuery
from uttu.model.lease import LaneState

_FEW_LANES: Final = 1000
_FRESH_SECONDS: Final = 10.0
_REST: Final = 30.0
_STALE_SECONDS: Final = 600.0
_STEP: Final = 2000
_AT_ONCE: Final = 500
# Lanes that have changed meanwhile leave gaps in a page, which are filled with this many further reads at most.
_MOST_READS: Final = 5
_MOST_SELECTIONS: Final = 16
_decode_lane = msgspec.msgpack.Decoder(LaneRecord).decode

# Minus pending, name, active, due, held, pinned. A plain tuple: such sort faster than objects with names.
_Row = tuple[int, str, int, float, float, int]

_FILTERS: Final[dict[LaneFilter, Callable[[_Row, float], bool]]] = {
    LaneFilter.ALL: lambda row, now: row[0] < 0 or row[2] > 0,
    LaneFilter.HELD: lambda row, now: row[4] > now,
    LaneFilter.WAITING: lambda row, now: row[0] < 0 and row[3] > now,
    LaneFilter.READY: lambda row, now: row[0] < 0 and row[3] <= now,
    LaneFilter.ACTIVE: lambda row, now: row[2] > 0,
    LaneFilter.PINNED: lambda row, now: row[5] > 0,
    LaneFilter.IDLE: lambda row, now: row[0] == 0 and row[2] == 0,
}


class LaneIndex:
    """The lanes of one crawl in the order of pages, for some seconds."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._selections: dict[tuple[LaneFilter, str], list[_Row]] = {}
        self._read_at: float | None = None
        self._took = 0.0
        self._scan: asyncio.Task[None] | None = None

    async def select(self, crawl: RedisCrawl, only: LaneFilter, match: str, now: float) -> list[_Row]:
        """Return the lanes that match, in order. ``match`` is in lower case, as hosts are."""
        if int(await crawl.read("HLEN", crawl.key("lanes"))) <= _FEW_LANES:
            return await _select(await _read_rows(crawl), only, match, now)
        await self._refresh(crawl)
        selections = self._selections
        found = selections.get((only, match))
        if found is None:
            found = await _select(self._rows, only, match, now)
            if len(selections) >= _MOST_SELECTIONS:
                selections.clear()
            selections[only, match] = found
        return found

    async def _refresh(self, crawl: RedisCrawl) -> None:
        now = time.monotonic()
        age = now - self._read_at if self._read_at is not None else _STALE_SECONDS
        fresh = min(max(_FRESH_SECONDS, _REST * self._took), _STALE_SECONDS)
        if age >= fresh and self._scan is None:
            self._scan = asyncio.create_task(self._read(crawl))
            self._scan.add_done_callback(self._end_scan)
        if age >= _STALE_SECONDS and (running := self._scan) is not None:
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                if running.cancelled():
                    raise StoreError(f"The connection to {crawl.server.place} was closed") from None
                raise

    async def _read(self, crawl: RedisCrawl) -> None:
        began = time.monotonic()
        rows = await _read_rows(crawl)
        self._rows, self._selections, self._read_at = rows, {}, time.monotonic()
        self._took = self._read_at - began

    def _end_scan(self, ended: asyncio.Task[None]) -> None:
        if not ended.cancelled():
            ended.exception()  # whoever waits for the scan gets it; the next page tries again
        self._scan = None

    def close(self) -> None:
        """Stop a scan that is under way."""
        if self._scan is not None:
            self._scan.cancel()


async def read_lane_page(crawl: RedisCrawl, index: LaneIndex, query: LaneQuery) -> LanePage:
    """See :meth:`uttu.frontier.base.Inspector.lanes`."""
    after = _parse_cursor(query.after)
    now = await crawl.now()
    if query.name:
        found = await _read_lanes(crawl, [query.name], query.only, now) if query.match.lower() in query.name else []
        return LanePage(found, total=len(found))
    rows = await index.select(crawl, query.only, query.match.lower(), now)
    position = bisect.bisect_right(rows, after, key=lambda row: row[:2]) if after else 0
    found = []
    reads = 0
    while position < len(rows) and len(found) < query.limit and reads < max(_MOST_READS, query.limit / _AT_ONCE + 1):
        names = [row[1] for row in rows[position : position + min(query.limit - len(found), _AT_ONCE)]]
        found += await _read_lanes(crawl, names, query.only, now)
        position += len(names)
        reads += 1
    found.sort(key=lambda lane: (-lane.pending, lane.name))
    last = rows[position - 1] if 0 < position < len(rows) else None
    return LanePage(found, f"{-last[0]}:{last[1]}" if last else "", len(rows))


async def _read_lanes(crawl: RedisCrawl, names: Sequence[str], only: LaneFilter, now: float) -> list[LaneState]:
    """Return these lanes as they are now, without those that the filter excludes now."""
    kept = await crawl.read("HMGET", crawl.key("lanes"), *names)
    found = [(name, _decode_lane(each)) for name, each in zip(names, kept, strict=True) if each is not None]
    return [
        LaneState(
            name=name,
            pending=lane.pending,
            active=lane.active,
            total=lane.total,
            pace=Pace(lane.delay, lane.cap),
            wait=max(0.0, lane.due - now),
            reason=lane.reason if lane.held > now else "",
            pinned=bool(lane.pinned),
        )
        for name, lane in found
        if _FILTERS[only](_to_row(name, lane), now)
    ]


async def _select(rows: list[_Row], only: LaneFilter, match: str, now: float) -> list[_Row]:
    belongs, found = _FILTERS[only], list[_Row]()
    for first in range(0, len(rows), _STEP):
        step = rows[first : first + _STEP]
        if match:
            step = [row for row in step if match in row[1]]
        found += [row for row in step if belongs(row, now)]
        await asyncio.sleep(0)
    return found


async def _read_rows(crawl: RedisCrawl) -> list[_Row]:
    seen: set[bytes] = set()
    rows: list[_Row] = []
    async for chunk in scan(crawl.server, "HSCAN", crawl.key("lanes")):
        # HSCAN may return a lane twice.
        fresh = [(name, kept) for name, kept in chunk if name not in seen]
        seen.update(name for name, _ in fresh)
        rows += [_to_row(name.decode(), _decode_lane(kept)) for name, kept in fresh]
    return await _sort(rows)


async def _sort(rows: list[_Row]) -> list[_Row]:
    """Sort without a long pause: split the rows into parts of about ``_STEP`` by value, and sort each part.

    The rows come in the order of a hash table, so the first ones are a fair sample of all.
    """
    sample = sorted(rows[:_STEP])
    bounds = sample[:: max(1, len(sample) * _STEP // max(1, len(rows)))][1:]
    parts: list[list[_Row]] = [[] for _ in range(len(bounds) + 1)]
    for first in range(0, len(rows), _STEP):
        for row in rows[first : first + _STEP]:
            parts[bisect.bisect_right(bounds, row)].append(row)
        await asyncio.sleep(0)
    found: list[_Row] = []
    for part in parts:
        found += sorted(part)
        await asyncio.sleep(0)
    return found


def _to_row(name: str, lane: LaneRecord) -> _Row:
    return -lane.pending, name, lane.active, lane.due, lane.held, lane.pinned


def _parse_cursor(after: str) -> tuple[int, str] | None:
    """Return the place of the last lane of the page before.

    :raises StoreError: no page ended there.
    """
    if not after:
        return None
    pending, colon, name = after.partition(":")
    if colon and pending.isascii() and pending.isdigit():
        return -int(pending), name
    raise RefusedData(f"No page of lanes ends at {after!r}. Begin with the first page")
