"""Large bodies: how much memory those of all hosts together may take."""

from __future__ import annotations

import asyncio
import gc
import gzip
from collections.abc import Awaitable, Callable

import pytest

from tests.fetch.conftest import MakeFetcher, Serve
from tests.fetch.servers import endless, reply, response
from uttu.errors import TooLarge
from uttu.fetch.exchange import LargeBodies, drop_reservation
from uttu.model import Request, Response

MB = 1024 * 1024


async def settle(condition: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_reservations_are_granted_in_order() -> None:
    bodies = LargeBodies(100)
    first, second, small = bodies.reserve(60), bodies.reserve(60), bodies.reserve(10)
    assert [each.done() for each in (first, second, small)] == [True, False, False]
    first.result().release()
    assert second.done()
    assert small.done()


async def test_reservation_released_twice_counts_once() -> None:
    bodies = LargeBodies(100)
    first, second, third = bodies.reserve(100), bodies.reserve(100), bodies.reserve(100)
    first.result().release()
    first.result().release()
    assert second.done()
    assert not third.done()


async def test_reservation_larger_than_all_takes_all() -> None:
    bodies = LargeBodies(100)
    assert bodies.reserve(1000).done()
    assert not bodies.reserve(1).done()


async def test_cancelled_reservation_takes_nothing() -> None:
    bodies = LargeBodies(100)
    first, second, third = bodies.reserve(100), bodies.reserve(100), bodies.reserve(100)
    drop_reservation(second)
    drop_reservation(first)
    assert third.done()


async def test_reservation_is_granted_when_patience_ends() -> None:
    bodies = LargeBodies(100, patience=0.05)
    bodies.reserve(100)
    late = bodies.reserve(100)
    async with asyncio.timeout(5):
        await late


class Sent:
    """Sends a body of ``size`` bytes to each request and counts how many bytes each client has taken so far."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.counts: list[int] = []

    async def handle(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        index = len(self.counts)
        self.counts.append(0)
        writer.transport.set_write_buffer_limits(high=64 * 1024)
        writer.write(response(length=self.size))
        for _ in range(0, self.size, 64 * 1024):
            writer.write(b"x" * 64 * 1024)
            await writer.drain()
            self.counts[index] += 64 * 1024


async def fetch_all(fetch: Callable[[Request], Awaitable[Response]], url: str, count: int) -> list[Response]:
    return list(await asyncio.gather(*(fetch(Request.to(f"{url}{number}")) for number in range(count))))


async def test_connections_pause_while_too_much_is_reserved(serve: Serve, make: MakeFetcher) -> None:
    sent = Sent(16 * MB)
    server = await serve(sent.handle)
    fetcher = make()
    fetcher._pool.large_bodies = LargeBodies(32 * MB, patience=60)
    kept: list[Response] = []

    async def fetch(request: Request) -> None:
        kept.append(await fetcher.fetch(request))

    tasks = [asyncio.ensure_future(fetch(Request.to(f"{server.url}{number}"))) for number in range(6)]
    await settle(lambda: len(kept) == 2)
    for _ in range(20):  # the others get no further, as long as these two are kept
        await asyncio.sleep(0.02)
    assert len(kept) == 2
    # Beyond what a connection reads before it reserves, there are the buffers of the system.
    assert sorted(sent.counts)[3] < 12 * MB
    while len(kept) < 6:
        before = len(kept)
        kept[:] = [kept[0]] * before  # drops the other responses
        gc.collect()
        await settle(lambda at=before: len(kept) > at)  # type: ignore[misc]
    await asyncio.gather(*tasks)
    assert {len(each.body) for each in kept} == {16 * MB}


async def test_failed_fetches_release_their_reservation(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(endless)
    fetcher = make(max_body=2 * MB)
    fetcher._pool.large_bodies = bodies = LargeBodies(2 * MB, patience=60)
    for _ in range(3):
        with pytest.raises(TooLarge):
            await fetcher.fetch(Request.to(server.url))
    held = bodies.reserve(2 * MB)
    assert held.done()
    waiting = [asyncio.ensure_future(fetcher.fetch(Request.to(server.url))) for _ in range(3)]
    await settle(lambda: len(bodies._waiting) == 3)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    drop_reservation(held)
    assert bodies.reserve(2 * MB).done()


async def test_decompressed_bodies_wait_for_memory(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(gzip.compress(bytes(16 * MB)), "Content-Encoding: gzip")))
    fetcher = make()
    fetcher._decoder._large_bodies = LargeBodies(16 * MB, patience=60)
    first = await fetcher.fetch(Request.to(server.url))
    second = asyncio.ensure_future(fetcher.fetch(Request.to(server.url)))
    for _ in range(20):
        await asyncio.sleep(0.02)
    assert not second.done()
    assert len(first.body) == 16 * MB
    del first
    gc.collect()
    assert len((await second).body) == 16 * MB
