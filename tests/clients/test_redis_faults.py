"""A Redis that misbehaves: whatever it answers, and wherever the connection breaks, the error is one of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from tests.clients.bad_servers import HANG_UP, RESET, SILENT, SpoilingProxy, answering, serving
from tests.frontier.redis_crawls import check_whole, crawl_at, crawl_on
from tests.harness.servers import RedisServer

from uttu.bus.redis.bus import RedisBus
from uttu.errors import BusError, StoreError
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.jobs.schedules.redis import RedisScheduleStore
from uttu.testing.contracts.store import EASY

DEEP = b"*1\r\n" * 100_000 + b":1\r\n"
ANSWERS = {
    "nothing": SILENT,
    "the end": HANG_UP,
    "a reset": RESET,
    "OK": b"+OK\r\n",
    "a number": b":1\r\n",
    "nil": b"$-1\r\n",
    "no list": b"*-1\r\n",
    "an empty list": b"*0\r\n",
    "a list of lists": b"*2\r\n*2\r\n:1\r\n$-1\r\n+x\r\n",
    "text that is not UTF-8": b"$4\r\n\xff\xfe\xfd\xfc\r\n",
    "half of an answer": b"$100\r\nhal",
    "a length without end": b"$99999999999999999999\r\n",
    "a large length": b"$2147483647\r\nx",
    "a list that does not end": b"*100000\r\n:1\r\n",
    "a negative length": b"$-7\r\n",
    "deep lists": DEEP,
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "TLS": b"\x15\x03\x03\x00\x02\x02\x46",
    "zeros": bytes(64),
    "noise": bytes(range(256)),
    "an empty error": b"-\r\n",
    "an error that is not UTF-8": b"-ERR \xff\xfe\r\n",
    "another program's info": b"$20\r\nredis_version:x.y\r\n\r\n",
    "odd info": b"$66\r\nredis_version:7.2.0\r\naof_enabled:?\r\nmaxmemory:no\r\nrole:none\r\n\r\n\r\n",
    "MOVED": b"-MOVED 1 127.0.0.1:1\r\n",
    "MOVED nowhere": b"-MOVED\r\n",
    "MOVED to nonsense": b"-MOVED x y\r\n",
    "ASK": b"-ASK 1 127.0.0.1:1\r\n",
    "ASK nonsense": b"-ASK 9\r\n",
    "LOADING": b"-LOADING Redis is loading the dataset in memory\r\n",
    "CLUSTERDOWN": b"-CLUSTERDOWN The cluster is down\r\n",
    "TRYAGAIN": b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    "MASTERDOWN": b"-MASTERDOWN Link with MASTER is down\r\n",
    "READONLY": b"-READONLY You can't write against a read only replica.\r\n",
    "OOM": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "BUSY": b"-BUSY Redis is busy running a script.\r\n",
    "NOAUTH": b"-NOAUTH Authentication required.\r\n",
    "WRONGPASS": b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    "NOPERM": b"-NOPERM this user has no permissions\r\n",
    "too many clients": b"-ERR max number of clients reached\r\n",
    "protected": b"-DENIED Redis is running in protected mode\r\n",
}
IMPATIENT = "socket_timeout=0.3&socket_connect_timeout=0.3"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


async def connect(answer: bytes, form: str) -> list[BaseException | None]:
    """How the attempts end to use a server that answers everything with ``answer``: as a store, and as a bus."""

    async def use(kind: type[RedisCatalog | RedisBus]) -> None:
        await (await kind.connect(url)).close()

    async with serving(answering(answer)) as port:
        url = f"{form.format(f'127.0.0.1:{port}')}?{IMPATIENT}"
        async with asyncio.timeout(30):
            return list(await asyncio.gather(use(RedisCatalog), use(RedisBus), return_exceptions=True))


@pytest.mark.parametrize("form", ["redis://{}/0", "redis+cluster://{}", "redis+sentinel://{}/main"])
async def test_unsuitable_server_is_refused(form: str) -> None:
    ends = await asyncio.gather(*(connect(answer, form) for answer in ANSWERS.values()))
    found = dict(zip(ANSWERS, ends, strict=True))
    assert {
        answer: (store, bus)
        for answer, (store, bus) in found.items()
        if not (isinstance(store, StoreError) and isinstance(bus, BusError))
    } == {}


async def test_schedules_on_a_server_that_can_not_be_used() -> None:
    # Left out: well-formed answers of the wrong kind.
    shapes = ("OK", "a number", "nil", "no list", "an empty list", "a list of", "text", "another", "odd")

    async def use(answer: bytes) -> BaseException | None:
        async with serving(answering(answer)) as port:
            store = RedisScheduleStore(f"redis://127.0.0.1:{port}/0?{IMPATIENT}", "x")
            for call in (store.runs, store.entries, partial(store.lead, "me", 1.0)):
                with pytest.raises(StoreError):
                    await asyncio.to_thread(call)
            await asyncio.to_thread(store.close)
        return None

    answers = [answer for name, answer in ANSWERS.items() if not name.startswith(shapes)]
    await asyncio.gather(*map(use, answers))


@asynccontextmanager
async def spoiled(server: RedisServer, ways: list[bytes | str], seed: int) -> AsyncIterator[tuple[SpoilingProxy, str]]:
    proxy = SpoilingProxy(server.port, ways, seed=seed)
    async with serving(proxy.serve) as port:
        yield proxy, f"redis://127.0.0.1:{port}/0"


PASSING: list[bytes | str] = ["cut", "half", "reset"]
PASSING += [ANSWERS[name] for name in ("LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "READONLY", "OOM", "BUSY")]
PASSING += [ANSWERS["too many clients"], b"-NOREPLICAS Not enough good replicas to write.\r\n", b"-MISCONF disk\r\n"]


@pytest.mark.parametrize("seed", range(3))
async def test_crawl_continues_after_passing_faults(server: RedisServer, seed: int) -> None:
    async with asyncio.timeout(60), crawl_at(server.url) as plain:
        prefix = plain.frontier._crawl.prefix  # type: ignore[attr-defined]
        name, number = prefix.split("{")[1].split("}")[0], int(prefix.split(":")[2])
        async with spoiled(server, PASSING, seed) as (proxy, url):
            proxy.heal()
            catalog = await RedisCatalog.connect(url)
            proxy.spoil()
            store = catalog.store(name, number, EASY)
            await crawl_on(store)
            assert proxy.spoiled
            await catalog.close()
        await check_whole(plain)


async def end_of(server: RedisServer, answer: bytes) -> BaseException | None:
    """How a call ends whose answer is spoiled once, on a connection that worked before."""
    async with spoiled(server, [answer], 1) as (proxy, url), asyncio.timeout(30):
        proxy.heal()
        catalog = await RedisCatalog.connect(f"{url}?socket_timeout=2")
        try:
            proxy.spoil_next()
            await catalog.names()
            return None
        except (Exception, asyncio.CancelledError) as error:
            return error
        finally:
            await catalog.close()


async def test_every_answer_ends_in_a_result_or_a_store_error(server: RedisServer) -> None:
    """A call ends in a result, after another try, or in an error of ours."""
    shapes = ("OK", "a number", "nil", "no list", "a list of", "text")  # are results, though of the wrong kind
    answers = {name: answer for name, answer in ANSWERS.items() if not name.startswith(shapes) and answer}
    ends = await asyncio.gather(*(end_of(server, answer) for answer in answers.values()))
    found = dict(zip(answers, ends, strict=True))
    assert {name: end for name, end in found.items() if not isinstance(end, StoreError | None)} == {}
