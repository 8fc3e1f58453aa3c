"""The crawls on a Redis server. See ``crawl`` for the keys.

Crawls of one name are numbered, and their keys contain the number. A crawl that is started again is a new one beside
the former, which is dropped once the new one has begun. Dropping takes many steps, so the number to drop is written to
``dropped`` first: if the process is killed meanwhile, the next one that changes the crawl completes the drop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from uttu.clients.addresses import mask_password
from uttu.clock import Clock
from uttu.errors import StoreError, UttuError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.redis.cache import CrawlCaches
from uttu.frontier.redis.connection import StoreConnection
from uttu.frontier.redis.crawl import EMPTY_TALLY, RedisCrawl, Tally
from uttu.frontier.redis.frontier import RedisFrontier
from uttu.frontier.redis.history import RedisHistory
from uttu.frontier.redis.inspector import RedisInspector
from uttu.frontier.redis.outbox import RedisLedger, RedisMemo, RedisOutbox, RedisSeedQueue
from uttu.frontier.redis.records import scan
from uttu.frontier.redis.transfer import RedisTransfer
from uttu.model.crawl import check_crawl_name
from uttu.model.history import RESOLUTIONS

_CRAWLS = "uttu:crawls"
# The claim of a killed supervisor expires after this time.
_SUPERVISOR_SECONDS = 6.0
_KEYS = (
    "ready",
    "leases",
    "deadlines",
    "delayed",
    "asked",
    "dead",
    "dead:groups",
    "history",
    "events",
    *(f"samples:{distance}" for distance, _ in RESOLUTIONS),
    "outbox",
    "marks",
    "cursors",
    "facts",
    "workers",
    "claims",
    "memo",
    "filled",
    "filled:history",
    "lanes",
)
_UNLINK_COUNT = 500
_RELEASE_SECONDS = 3.0
_PUT_ASIDE = "return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('RENAME', KEYS[1], KEYS[2]) or 0"
_IF_MINE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call(unpack(ARGV, 2)) end return 0"
_log = logging.getLogger("uttu.frontier")


class RedisCatalog:
    """See :class:`uttu.frontier.catalog.CrawlCatalog`."""

    shared = True

    def __init__(self, server: StoreConnection, address: str = "") -> None:
        self.address = address
        self._server = server
        self._caches = CrawlCaches()

    @classmethod
    async def connect(cls, url: str) -> RedisCatalog:
        """Connect to a server.

        :raises StoreError: the server cannot be reached or used.
        :raises ConfigError: the URL is not valid.
        """
        return cls(await StoreConnection.connect(url), mask_password(url))

    async def names(self) -> list[str]:
        return [name.decode() for name in await self._server.command("SMEMBERS", _CRAWLS)]

    async def open(self, crawl: str, rules: Rules) -> CrawlStore:
        number = await self._number(crawl, "number")
        if not number:
            raise StoreError(f"there is no crawl {crawl!r} on {self._server.place}")
        return self.store(crawl, number, rules)

    async def create(self, crawl: str, rules: Rules) -> CrawlStore:
        check_crawl_name(crawl)
        await self._complete_drop(crawl)
        new = int(await self._server.command("HINCRBY", _crawl_key(crawl), "last", 1))
        # Until the new crawl has the name, it counts as one to drop.
        await self._note(crawl, dropped=new)
        await self._server.command("SET", _key_prefix(crawl, new) + "tally", EMPTY_TALLY)
        number, former = await self._number(crawl, "number"), await self._number(crawl, "former")
        if former:  # the crawl that replaced the former one never began
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

    async def discard(self, crawl: str) -> None:
        await self._complete_drop(crawl)
        if await self._number(crawl, "former"):
            await self.restore(crawl)
            return
        # The pushed seeds stay: other programs may have pushed them before the crawl began.
        await self._server.command("SREM", _CRAWLS, crawl)
        await self._note(crawl, number=0, dropped=await self._number(crawl, "number"))
        await self._complete_drop(crawl)

    async def remove(self, crawl: str) -> None:
        """Drop a crawl and all keys of its name."""
        for field in ("number", "former", "dropped"):
            await self._drop(crawl, await self._number(crawl, field))
        await self._server.command("SREM", _CRAWLS, crawl)
        home = _crawl_key(crawl)
        await self._server.command("UNLINK", home, f"{home}:start", f"{home}:refused", f"{home}:supervisor")

    @contextlib.asynccontextmanager
    async def supervise(self, crawl: str) -> AsyncIterator[None]:
        check_crawl_name(crawl)
        key, owner = f"{_crawl_key(crawl)}:supervisor", f"{socket.gethostname()}-{secrets.token_hex(6)}"
        await self._claim(crawl, key, owner)
        renewing = asyncio.create_task(self._renew(crawl, key, owner))
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            # If the server is away, do not wait: the claim expires by itself.
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._server.command("EVAL", _IF_MINE, 1, key, owner, "DEL", key)

    async def is_supervised(self, crawl: str) -> bool:
        return bool(await self._server.command("EXISTS", f"{_crawl_key(crawl)}:supervisor"))

    async def close(self) -> None:
        self._caches.close()
        await self._server.close()

    def store(self, crawl: str, number: int, rules: Rules, clock: Clock | None = None) -> CrawlStore:
        """Return the roles of a crawl; ``clock`` is for tests."""
        handle = RedisCrawl(self._server, crawl, number, rules, clock)
        return CrawlStore(
            frontier=RedisFrontier(handle, clock),
            outbox=RedisOutbox(handle),
            memo=RedisMemo(handle),
            ledger=RedisLedger(handle),
            inspector=RedisInspector(handle, self._caches.find(handle.prefix)),
            history=RedisHistory(handle),
            transfer=RedisTransfer(handle),
            feed=RedisSeedQueue(handle),
        )

    async def _claim(self, crawl: str, key: str, owner: str) -> None:
        """Become the supervisor.

        The claim of a killed supervisor lasts until it expires; a live one renews it. So wait, and give up once the
        remaining time grows.
        """
        left = -1
        while not await self._take(key, owner):
            before, left = left, int(await self._server.command("PTTL", key))
            if 0 <= before < left:
                raise UttuError(
                    f"crawl {crawl!r} is running already, supervised by {await self._supervisor(key)}. "
                    "Add to it with: uttu worker FILE --frontier …"
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
        # The first try may have succeeded although its reply was lost.
        return bool(taken) or await self._server.command("GET", key) == owner.encode()

    async def _renew(self, crawl: str, key: str, owner: str) -> None:
        """Renew the claim every third of ``_SUPERVISOR_SECONDS``.

        If the server was away for long, another process may have the role by now. Leases keep the crawl correct even
        then, so it is only logged.
        """
        said = False
        while True:
            await asyncio.sleep(_SUPERVISOR_SECONDS / 3)
            expiry: tuple[Any, ...] = ("PEXPIRE", key, int(_SUPERVISOR_SECONDS * 1000))
            mine = await self._server.command("EVAL", _IF_MINE, 1, key, owner, *expiry)
            if not mine and not await self._take(key, owner) and not said:
                said = True
                _log.warning("crawl %r is supervised by %s, too", crawl, await self._supervisor(key))

    async def _number(self, crawl: str, field: str) -> int:
        return int(await self._server.command("HGET", _crawl_key(crawl), field) or 0)

    async def _note(self, crawl: str, **fields: int) -> None:
        """Set the numbers of a name in one step."""
        await self._server.command("HSET", _crawl_key(crawl), *(word for pair in fields.items() for word in pair))

    async def _complete_drop(self, crawl: str) -> None:
        number = await self._number(crawl, "dropped")
        if number:
            await self._drop(crawl, number)
            await self._note(crawl, dropped=0)

    async def _drop(self, crawl: str, number: int) -> None:
        """Remove a crawl. Workers that still use it get an error that it is gone. Safe to repeat, also after a kill."""
        prefix = _key_prefix(crawl, number)
        tally, aside = prefix + "tally", prefix + "dropped"
        # Without its tally the crawl is gone for workers. The renamed tally is needed to find all keys.
        await self._server.command("EVAL", _PUT_ASIDE, 2, tally, aside)
        kept = await self._server.command("GET", aside)
        async for lanes in scan(self._server, "HSCAN", prefix + "lanes"):
            keys = [f"{prefix}{kind}:{name.decode()}" for name, _ in lanes for kind in ("queue", "back")]
            for first in range(0, len(keys), _UNLINK_COUNT):
                await self._server.command("UNLINK", *keys[first : first + _UNLINK_COUNT])
        buckets = msgspec.msgpack.decode(kept, type=Tally).buckets if kept else 0
        for first in range(0, buckets, _UNLINK_COUNT):
            keys = [f"{prefix}seen:{bucket}" for bucket in range(first, min(first + _UNLINK_COUNT, buckets))]
            await self._server.command("UNLINK", *keys)
        groups = await self._server.command("HVALS", prefix + "dead:groups")
        if groups:
            await self._server.command("UNLINK", *(f"{prefix}dead:{group.decode()}" for group in groups))
        await self._server.command("UNLINK", *(prefix + name for name in _KEYS), aside)


async def open_catalog(url: str, folder: Path) -> RedisCatalog:
    """The catalog of a frontier's URL. ``folder`` is not used."""
    return await RedisCatalog.connect(url)


def _crawl_key(crawl: str) -> str:
    return f"uttu:{{{crawl}}}"


def _key_prefix(crawl: str, number: int) -> str:
    return f"uttu:{{{crawl}}}:{number}:"
