"""A process has few connections to a server, however many calls it makes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from tests.frontier.redis_crawls import COUNT, crawl_at
from tests.harness.servers import RedisCluster, RedisSentinel, RedisServer

T = TypeVar("T")
CALLS, CONNECTIONS = 64, 8


async def in_time(work: Awaitable[T]) -> T:
    return await asyncio.wait_for(work, 30)


async def clients_after_many_calls(url: str, server: RedisServer, name: str) -> int:
    """How many connections of this name there are when many calls were made at once."""
    async with crawl_at(f"{url}{'&' if '?' in url else '?'}client_name={name}") as store:
        await in_time(asyncio.gather(*(store.frontier.counts() for _ in range(CALLS))))
        return str(server.ask("CLIENT", "LIST")).count(f" name={name} ")


@pytest.mark.parametrize("unix", [False, True])
async def test_of_a_server(unix: bool) -> None:
    with RedisServer(unix=unix) as server:
        assert 1 < await clients_after_many_calls(server.url, server, "plain") <= CONNECTIONS


async def test_of_a_primary_that_sentinels_know() -> None:
    with RedisSentinel() as group:
        assert 1 < await clients_after_many_calls(group.url, group.primary, "known") <= CONNECTIONS


async def test_of_each_node_of_a_cluster() -> None:
    with RedisCluster() as cluster:
        async with crawl_at(f"{cluster.url}?client_name=node") as store:
            await in_time(asyncio.gather(*(store.frontier.counts() for _ in range(CALLS))))
            for node in cluster.nodes:
                # and one to the node that was asked for the others
                assert str(node.ask("CLIENT", "LIST")).count(" name=node ") <= CONNECTIONS + 1


async def test_calls_that_are_cancelled_leave_their_turn_to_others() -> None:
    with RedisServer() as server:
        async with crawl_at(server.url) as store:
            server.pause()
            calls = [asyncio.create_task(store.frontier.counts()) for _ in range(3 * CONNECTIONS)]
            for _ in range(50):  # until those that have a connection wait for its answer
                await asyncio.sleep(0)
            # Of those that have a connection, and of those that wait for one.
            cancelled, others = calls[::2], calls[1::2]
            for call in cancelled:
                call.cancel()
            ends = await in_time(asyncio.gather(*cancelled, return_exceptions=True))
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            server.resume()
            assert [counts.pending for counts in await in_time(asyncio.gather(*others))] == [COUNT] * len(others)
            await in_time(asyncio.gather(*(store.frontier.counts() for _ in range(CALLS))))
