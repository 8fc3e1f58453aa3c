"""The crawls on a Redis server. The keys are drawn in ``crawl``.

Crawls of one name are numbered, and their keys have the number in them: a crawl that starts again is a new one
beside the former, which is dropped when the new one has begun. Dropping takes many steps, so what is to be dropped is
noted first: if its process is killed meanwhile, the next one that changes anything here completes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from weft.clock import Clock
from weft.drivers.urls import masked
from weft.errors import StoreError, WeftError
from weft.frontier.base import Rules
from weft.frontier.depot import Store, check_name
from weft.frontier.redis.crawl import EMPTY_TALLY, RedisCrawl, Tally
from weft.frontier.redis.frontier import RedisFrontier
from weft.frontier.redis.inspector import RedisInspector
from weft.frontier.redis.mover import RedisMover
from weft.frontier.redis.scan import scanned
from weft.frontier.redis.server import Server
from weft.frontier.redis.shelves import RedisFeed, RedisLedger, RedisMemo, RedisOutbox

_CRAWLS = "weft:crawls"
# A supervisor that was killed is noticed after so long.
_SUPERVISOR_SECONDS = 6.0
_PLAIN = (
    "ready", "leases", "deadlines", "delayed", "asked", "dead", "history", "outbox", "cursors", "facts", "workers",
    "claims", "memo", "filled", "filled:history", "lanes",
)  # fmt: skip
_AT_ONCE = 500
_RELEASE_SECONDS = 3.0
_PUT_ASIDE = "return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('RENAME', KEYS[1], KEYS[2]) or 0"
_IF_MINE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call(unpack(ARGV, 2)) end return 0"
_log = logging.getLogger("weft.store")


class RedisDepot:
    """See :class:`weft.frontier.depot.Depot`."""

    shared = True

    def __init__(self, server: Server, address: str = "") -> None:
        self.address = address
        self._server = server

    @classmethod
    async def connect(cls, url: str) -> RedisDepot:
        """:raises StoreError: the server can't be reached or used.
        :raises ConfigError: this is no URL of one.
        """
        return cls(await Server.connect(url), masked(url))

    async def names(self) -> list[str]:
        return [name.decode() for name in await self._server.command("SMEMBERS", _CRAWLS)]

    async def open(self, crawl: str, rules: Rules) -> Store:
        number = await self._number(crawl, "number")
        if not number:
            raise StoreError(f"there is no crawl {crawl!r} on {self._server.place}")
        return self.store(crawl, number, rules)

    async def create(self, crawl: str, rules: Rules) -> Store:
        check_name(crawl)
        await self._complete_drop(crawl)
        new = int(await self._server.command("HINCRBY", _home(crawl), "last", 1))
        # Until it is the crawl of this name, it is one to be dropped.
        await self._note(crawl, dropped=new)
        await self._server.command("SET", _prefix(crawl, new) + "tally", EMPTY_TALLY)
        number, former = await self._number(crawl, "number"), await self._number(crawl, "former")
        if former:  # what it was put aside for never began
            await self._note(crawl, number=new, former=former, dropped=number)
        else:
            await self._note(crawl, number=new, former=number, dropped=0)
        await self._server.command("SADD", _CRAWLS, crawl)
        await self._complete_drop(crawl)
        return self.store(crawl, new, rules)

    async def keep(self, crawl: str) -> None:
        await self._complete_drop(crawl)
        former = await self._number(crawl, "former")
        if former:
            await self._note(crawl, former=0, dropped=former)
            await self._complete_drop(crawl)

    async def restore(self, crawl: str) -> None:
        await self._complete_drop(crawl)
        former = await self._number(crawl, "former")
        if former:
            await self._note(crawl, number=former, former=0, dropped=await self._number(crawl, "number"))
            await self._complete_drop(crawl)

    async def remove(self, crawl: str) -> None:
        """Drop a crawl and all that belongs to its name."""
        for field in ("number", "former", "dropped"):
            await self._drop(crawl, await self._number(crawl, field))
        await self._server.command("SREM", _CRAWLS, crawl)
        home = _home(crawl)
        await self._server.command("UNLINK", home, f"{home}:start", f"{home}:refused", f"{home}:supervisor")

    @contextlib.asynccontextmanager
    async def supervise(self, crawl: str) -> AsyncIterator[None]:
        check_name(crawl)
        key, owner = f"{_home(crawl)}:supervisor", f"{socket.gethostname()}-{secrets.token_hex(6)}"
        await self._claim(crawl, key, owner)
        renewing = asyncio.create_task(self._renew(crawl, key, owner))
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            # If the server is away there is nothing to wait for: the claim ends by itself.
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._server.command("EVAL", _IF_MINE, 1, key, owner, "DEL", key)

    async def is_supervised(self, crawl: str) -> bool:
        return bool(await self._server.command("EXISTS", f"{_home(crawl)}:supervisor"))

    async def close(self) -> None:
        await self._server.close()

    def store(self, crawl: str, number: int, rules: Rules, clock: Clock | None = None) -> Store:
        """The roles of a crawl; ``clock`` is for tests."""
        handle = RedisCrawl(self._server, crawl, number, rules, clock)
        return Store(
            frontier=RedisFrontier(handle, clock),
            outbox=RedisOutbox(handle),
            memo=RedisMemo(handle),
            ledger=RedisLedger(handle),
            inspector=RedisInspector(handle),
            mover=RedisMover(handle),
            feed=RedisFeed(handle),
        )

    async def _claim(self, crawl: str, key: str, owner: str) -> None:
        """Become the supervisor. One that was killed a moment ago still seems to live, until its place expires; one
        that lives renews it."""
        left = -1
        while not await self._take(key, owner):
            before, left = left, int(await self._server.command("PTTL", key))
            if 0 <= before < left:
                raise WeftError(
                    f"crawl {crawl!r} is running already, supervised by {await self._supervisor(key)}. "
                    "Add to it with: weft worker FILE --frontier …"
                )
            if before < 0:
                _log.warning(
                    "crawl %r is supervised by %s; looking whether that lives", crawl, await self._supervisor(key)
                )
            await asyncio.sleep(0.2)

    async def _supervisor(self, key: str) -> str:
        owner: bytes | None = await self._server.command("GET", key)
        return owner.decode().rpartition("-")[0] if owner else "another process"

    async def _take(self, key: str, owner: str) -> bool:
        taken = await self._server.command("SET", key, owner, "NX", "PX", int(_SUPERVISOR_SECONDS * 1000))
        # It may be taken already, by a first try whose answer got lost.
        return bool(taken) or await self._server.command("GET", key) == owner.encode()

    async def _renew(self, crawl: str, key: str, owner: str) -> None:
        """Stay the supervisor. A server that was away for long may have given the place to another: leases keep the
        crawl right all the same, so that is only said."""
        said = False
        while True:
            await asyncio.sleep(_SUPERVISOR_SECONDS / 3)
            expiry: tuple[Any, ...] = ("PEXPIRE", key, int(_SUPERVISOR_SECONDS * 1000))
            mine = await self._server.command("EVAL", _IF_MINE, 1, key, owner, *expiry)
            if not mine and not await self._take(key, owner) and not said:
                said = True
                _log.warning("crawl %r is supervised by %s, too", crawl, await self._supervisor(key))

    async def _number(self, crawl: str, field: str) -> int:
        return int(await self._server.command("HGET", _home(crawl), field) or 0)

    async def _note(self, crawl: str, **fields: int) -> None:
        """Change the numbers of a name, in one step."""
        await self._server.command("HSET", _home(crawl), *(word for pair in fields.items() for word in pair))

    async def _complete_drop(self, crawl: str) -> None:
        number = await self._number(crawl, "dropped")
        if number:
            await self._drop(crawl, number)
            await self._note(crawl, dropped=0)

    async def _drop(self, crawl: str, number: int) -> None:
        """Remove a crawl; whoever still works on it is told that it is gone. Again does no harm, nor after a kill."""
        prefix = _prefix(crawl, number)
        tally, aside = prefix + "tally", prefix + "dropped"
        # Without its tally the crawl is gone. What the tally says is still needed to find all keys.
        await self._server.command("EVAL", _PUT_ASIDE, 2, tally, aside)
        kept = await self._server.command("GET", aside)
        async for lanes in scanned(self._server, "HSCAN", prefix + "lanes"):
            keys = [f"{prefix}{kind}:{name.decode()}" for name, _ in lanes for kind in ("queue", "back")]
            for first in range(0, len(keys), _AT_ONCE):
                await self._server.command("UNLINK", *keys[first : first + _AT_ONCE])
        buckets = msgspec.msgpack.decode(kept, type=Tally).buckets if kept else 0
        for first in range(0, buckets, _AT_ONCE):
            keys = [f"{prefix}seen:{bucket}" for bucket in range(first, min(first + _AT_ONCE, buckets))]
            await self._server.command("UNLINK", *keys)
        await self._server.command("UNLINK", *(prefix + name for name in _PLAIN), aside)


def _home(crawl: str) -> str:
    return f"weft:{{{crawl}}}"


def _prefix(crawl: str, number: int) -> str:
    return f"weft:{{{crawl}}}:{number}:"
