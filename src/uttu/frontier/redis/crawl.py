"""One crawl on a Redis server: its keys, and the operations on them.

All keys of a crawl have the hash tag ``{NAME}``, so they are in one slot of a Redis Cluster, on one node, and an
operation can change all of them in one atomic step. A cluster spreads crawls over its nodes, not the pages of one
crawl: see ADR 0006. ``N`` numbers the crawls of that name; keys begin with ``uttu:{NAME}:N:``.

    tally         STRING  the counts, the last numbers assigned, the number of ``seen`` sets, the order
    seen:0 …      SETs    every fingerprint ever admitted, in sets small enough to be arrays of integers
    lanes         HASH    host → due, delay, cap, pending, active, total, held, reason, pinned, in back,
                          and for a pinned lane the delay and cap it returns to, once known
    ready         ZSET    the lanes that can give a request, by due time
    queue:LANE    LIST    entries, "seq record": requests that were never leased, in the order of the crawl
    back:LANE     ZSET    by rank, "place attempt losses entry": requests leased before, or with a priority
    delayed       ZSET    retries, by due time
    leases        HASH    id → lane, rank, attempt, losses, entry, worker, start
    deadlines     ZSET    lease ids by deadline
    asked         HASH    worker → the id of its last lease call and the leases it got, in case the reply is lost
    dead          HASH    seq → the request, the time and the reason of its death
    dead:groups   HASH    kind and message → the number of the group of such dead letters
    dead:1 …      ZSETs   one for each group: its letters by time of death
    samples:10 …  ZSETs   one for each resolution: samples of the crawl's numbers by time
    events        STREAM  position → kind and fields of an event; capped
    history       STREAM  results of the latest pages, one entry per settle batch; capped
    outbox        STREAM  position → item; fingerprint and number make its id
    marks         ZSET    the position of about every hundredth item, by the number of items at that time: the
                          positions where the outbox may be cut
    cursors       HASH    sink → "position state"
    memo          HASH    key → "until value": robots.txt files and other shared values
    facts         HASH    the crawl: spider, arguments, state …
    workers       HASH    worker → "time report"
    claims        HASH    role → owner, until
    filled        STRING  one bit per request that was moved here; filled:history, a SET, for the history

Keys for all crawls of that name:

    uttu:{NAME}            HASH   the number of the crawl; also of the former one and of one that is being dropped
    uttu:{NAME}:start      LIST   start URLs that other programs push, each a URL or a JSON object
    uttu:{NAME}:refused    LIST   the latest pushed entries that were neither
    uttu:{NAME}:supervisor STRING the supervisor; expires

A request is in exactly one of queue, back, delayed, leases and dead, or it is done. ``seq`` numbers requests as they
are admitted. A request keeps its number, so a request that is given back returns to its place. A record is the JSON of
a request; the scheme and host of its URL are left out if they match the lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from uttu.clock import Clock
from uttu.errors import StoreError
from uttu.frontier.base import Rules
from uttu.frontier.redis.connection import CrawlGone, StoreConnection
from uttu.model import Counts, Request, inspection

T = TypeVar("T")

_SCHEMES: Final = {"s": '{"u":"https://', "p": '{"u":"http://'}
_pack = msgspec.msgpack.Encoder().encode
EMPTY_TALLY: Final = _pack([0] * 11 + [1, -1, 0, 0])
# Operations that free memory, or need hardly any: they may run when the server is out of memory.
_RELIEF: Final = frozenset({"advance", "trim", "claim", "release", "record", "add_events"})


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """The counts and counters, in the layout of ``lua/1_crawl.lua``."""

    pending: int
    leased: int
    delayed: int
    done: int
    dead: int
    items: int
    bytes: int
    seq: int
    lease: int
    position: int
    seen: int
    buckets: int
    lifo: int
    """1 if the order is last in first out, 0 if not, -1 if no request has been admitted yet."""
    trimmed: int = 0
    cut: int = 0
    """``trimmed`` items were removed from the outbox, up to position ``cut``."""

    def counts(self) -> Counts:
        return Counts(**{name: getattr(self, name) for name in Counts.__struct_fields__})


class RedisCrawl:
    """Shared by all roles of the store: the keys, the rules, the clock and the connection.

    ``clock`` is for tests; without it the time is the server's.
    """

    def __init__(
        self, server: StoreConnection, name: str, number: int, rules: Rules, clock: Clock | None = None
    ) -> None:
        self.server = server
        self.name = name
        self.prefix = f"uttu:{{{name}}}:{number}:"
        self.ranked = rules.order == "priority"
        self._clock = clock
        self._rules = _pack(
            {
                "lifo": rules.order == "lifo",
                "delay": rules.pace.delay,
                "cap": 1 if rules.probe else rules.pace.limit,
                "lease_seconds": rules.lease_seconds,
                "ahead": rules.ahead,
                "max_losses": rules.max_losses,
                "max_pages": rules.max_pages,
                "max_items": rules.max_items,
                "max_per_lane": rules.max_per_lane,
                "max_groups": inspection.MOST_DEAD_GROUPS,
            }
        )

    def key(self, name: str) -> str:
        return self.prefix + name

    async def operate(self, operation: str, asked: Any, result: type[T], *blobs: bytes) -> T:
        """Run one atomic operation of the Lua library.

        :param asked: the arguments, or a function that returns them and is called at each try.
        :param blobs: binary arguments, which the server's Lua cannot unpack.
        :raises StoreError: see :class:`StoreConnection`; or the crawl no longer exists.
        """
        return (await self._operate(operation, asked, result, blobs))[1]

    async def now(self) -> float:
        """Return the time of the server."""
        return (await self._operate("now", False, bool))[0]

    async def read(self, *command: Any) -> Any:
        """Run a plain Redis command on the crawl's keys."""
        return await self.server.command(*command)

    async def read_both(self, one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, Any]:
        """Run two commands on the crawl's keys, in order, in one round trip."""
        return await self.server.commands(self.key("tally"), one, other)

    async def tally(self) -> Tally:
        return self.tally_of(await self.read("GET", self.key("tally")))

    def tally_of(self, kept: bytes | None) -> Tally:
        """:raises StoreError: ``kept`` is None, so the crawl no longer exists."""
        if kept is None:
            raise self._gone()
        return msgspec.msgpack.decode(kept, type=Tally)

    async def _operate(
        self, operation: str, asked: Any, result: type[T], blobs: Sequence[bytes] = ()
    ) -> tuple[float, T]:
        ask: Callable[[], Any] = asked if callable(asked) else lambda: asked

        def arguments() -> list[Any]:
            now = "" if self._clock is None else repr(self._clock.time())
            return [self.prefix, operation, now, self._rules, _pack(ask()), *blobs]

        try:
            answer = await self.server.operate(self.key("tally"), arguments, relief=operation in _RELIEF)
        except CrawlGone as error:
            raise self._gone() from error
        return msgspec.msgpack.decode(answer, type=tuple[float, result])  # type: ignore[valid-type]

    def _gone(self) -> StoreError:
        return StoreError(
            f"crawl {self.name!r} is not on {self.server.place} any more: it was started again, moved, or the server "
            "lost its data"
        )


def decode_names(answer: Mapping[bytes, bytes] | list[bytes]) -> dict[str, bytes]:
    """Return a hash from Redis with its names as text."""
    pairs = answer.items() if isinstance(answer, Mapping) else zip(answer[::2], answer[1::2], strict=True)
    return {name.decode(): value for name, value in pairs}


def encode_record(request: Request, lane: str) -> str:
    """Return the record of a request as it is stored in a lane: ``s`` or ``p`` replaces the scheme and host."""
    record = request.record().decode()
    for letter, scheme in _SCHEMES.items():
        if record.startswith(scheme + lane):
            return letter + record[len(scheme) + len(lane) :]
    return record


def decode_entry(entry: str, lane: str) -> Request:
    """Return the request of an entry in a lane."""
    record = entry[entry.index(" ") + 1 :]
    scheme = _SCHEMES.get(record[0])
    return Request.from_record(scheme + lane + record[1:] if scheme else record)


def encode_requests(requests: Iterable[Request], ranked: bool) -> list[str | int]:
    """Return a flat list with fingerprint, lane, rank and record of each request, as ``put`` in Lua takes it."""
    told: list[str | int] = []
    for request in requests:
        lane = request.lane
        told += (str(request.fingerprint), lane, -request.priority if ranked else 0, encode_record(request, lane))
    return told
