"""One crawl on a Redis server: its keys, and the operations on them.

Everything of a crawl has the hash tag ``{NAME}``, so it is in one slot of a Redis Cluster, on one node, and an
operation can change all of it in one atomic step. A cluster spreads crawls over its nodes, not the pages of one
crawl: see ADR 0006. ``N`` numbers the crawls of that name; keys begin with ``weft:{NAME}:N:``.

    tally         STRING  the counts, the last numbers given out, how many sets ``seen`` has, the order
    seen:0 …      SETs    every fingerprint ever admitted, in sets small enough to be arrays of integers
    lanes         HASH    host → due, delay, cap, pending, active, total, held, reason, pinned, in back,
                          and if it is pinned the delay and cap it goes back to, once known
    ready         ZSET    the lanes that can give something, by the time they are due
    queue:LANE    LIST    entries, "seq record": what was never out, in the order of the crawl
    back:LANE     ZSET    by rank, "place attempt losses entry": what was out before, or has a priority
    delayed       ZSET    by due time: retries that wait for it
    leases        HASH    id → lane, rank, attempt, losses, entry, worker, start
    deadlines     ZSET    lease ids by deadline
    asked         HASH    worker → its last question and the leases it got, should the answer get lost
    dead          HASH    seq → the request, when and why it was given up
    history       STREAM  how the latest pages were done, an entry a batch; capped
    outbox        STREAM  position → item; fingerprint and number make its id
    cursors       HASH    sink → "position state"
    memo          HASH    key → "until value": robots.txt and the like
    facts         HASH    the crawl: spider, arguments, state …
    workers       HASH    worker → "time report"
    claims        HASH    role → owner, until
    filled        STRING  a bit for each request that was moved here; filled:history, a SET, for the history

Beside it, for all crawls of that name:

    weft:{NAME}            HASH   the number of the crawl; of the former one, and of one being dropped, while there is
    weft:{NAME}:start      LIST   start URLs that other programs push: a URL or a JSON object each
    weft:{NAME}:refused    LIST   the latest of them that were neither
    weft:{NAME}:supervisor STRING who supervises it; expires

A request is in exactly one of queue, back, delayed, leases and dead, or it is done. ``seq`` numbers requests as
they are admitted, for ever; a request keeps it, so what comes back stands where it stood. Records are a request's
JSON; the URL's scheme and host, where they are the lane's, are left out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from weft.clock import Clock
from weft.errors import StoreError
from weft.frontier.base import Rules
from weft.frontier.redis.server import Gone, Server
from weft.model import Counts, Request

T = TypeVar("T")

_SCHEMES: Final = {"s": '{"u":"https://', "p": '{"u":"http://'}
_pack = msgspec.msgpack.Encoder().encode
EMPTY_TALLY: Final = _pack([0] * 11 + [1, -1])


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """The counts, as the server keeps them."""

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
    """1 if the last in is the first out, -1 if nothing came in yet."""

    def counts(self) -> Counts:
        return Counts(**{name: getattr(self, name) for name in Counts.__struct_fields__})


class RedisCrawl:
    """What all roles of the store share: the crawl's keys, the rules, the time, and the way to the server.

    ``clock`` is for tests; without it the time is the server's.
    """

    def __init__(self, server: Server, name: str, number: int, rules: Rules, clock: Clock | None = None) -> None:
        self.server = server
        self.name = name
        self.prefix = f"weft:{{{name}}}:{number}:"
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
                "max_per_lane": rules.max_per_lane,
            }
        )

    def key(self, name: str) -> str:
        return self.prefix + name

    async def operate(self, operation: str, asked: Any, result: type[T], *blobs: bytes) -> T:
        """One atomic step on the server. ``asked`` may be a function, called at each try; ``blobs`` are what is not
        text, which the server's Lua can't unpack.

        :raises StoreError: see :class:`Server`; or the crawl is not there any more.
        """
        return (await self._operate(operation, asked, result, blobs))[1]

    async def now(self) -> float:
        return (await self._operate("now", False, bool))[0]

    async def read(self, *command: Any) -> Any:
        """A plain command of Redis on the crawl's keys."""
        return await self.server.command(*command)

    async def tally(self) -> Tally:
        kept = await self.read("GET", self.key("tally"))
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
            answer = await self.server.operate(self.key("tally"), arguments)
        except Gone as error:
            raise self._gone() from error
        return msgspec.msgpack.decode(answer, type=tuple[float, result])  # type: ignore[valid-type]

    def _gone(self) -> StoreError:
        return StoreError(
            f"crawl {self.name!r} is not on {self.server.place} any more: it was started again, moved, or the server "
            "lost its data"
        )


def texts(answer: Mapping[bytes, bytes] | list[bytes]) -> dict[str, bytes]:
    """A hash as Redis returns it, with names as text."""
    pairs = answer.items() if isinstance(answer, Mapping) else zip(answer[::2], answer[1::2], strict=True)
    return {name.decode(): value for name, value in pairs}


def shortened(request: Request, lane: str) -> str:
    """The record to store in a lane."""
    record = request.record().decode()
    for letter, scheme in _SCHEMES.items():
        if record.startswith(scheme + lane):
            return letter + record[len(scheme) + len(lane) :]
    return record


def restored(entry: str, lane: str) -> Request:
    """The request of an entry in a lane."""
    record = entry[entry.index(" ") + 1 :]
    scheme = _SCHEMES.get(record[0])
    return Request.from_record(scheme + lane + record[1:] if scheme else record)


def admissible(requests: Iterable[Request], ranked: bool) -> list[str | int]:
    """Requests as the server admits them: fingerprint, lane, rank and record of each, one after the other."""
    told: list[str | int] = []
    for request in requests:
        lane = request.lane
        told += (str(request.fingerprint), lane, -request.priority if ranked else 0, shortened(request, lane))
    return told
