"""Every form of address leads to a crawl; what is no address is said, and what is secret is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fetch.certificates import Authority
from tests.frontier.redis_crawls import COUNT, check_whole, crawl_at, crawl_on, depot_at, done, new_name
from tests.harness.servers import RedisCluster, RedisSentinel, RedisServer

from uttu.testing.contracts.store import EASY

# Every character that means something in a URL.
PASSWORD = "p@ss:w/o?r#d%"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def locked() -> Iterator[RedisServer]:
    with RedisServer(password=PASSWORD) as server:
        server.ask("ACL", "SETUSER", "crawler", "on", ">s3cret", "~uttu:*", "+@all", "-@admin", "-@dangerous", "+info")
        yield server


async def crawled(url: str) -> None:
    async with crawl_at(url) as store:
        await crawl_on(store)
        await check_whole(store)


async def test_a_plain_server(server: RedisServer) -> None:
    await crawled(f"redis://127.0.0.1:{server.port}")
    await crawled(f"redis://localhost:{server.port}/")
    await crawled(f"REDIS://127.0.0.1:{server.port}/0?client_name=uttu&socket_timeout=5")


async def test_databases_are_apart(server: RedisServer) -> None:
    name = new_name()
    for url in (f"redis://127.0.0.1:{server.port}/7", f"redis://127.0.0.1:{server.port}?db=8"):
        await crawled(url)
        async with depot_at(url) as catalog:
            assert name not in await catalog.names()
            await catalog.create(name, EASY)
    async with depot_at(server.url) as catalog:
        assert name not in await catalog.names()


async def test_a_password(locked: RedisServer) -> None:
    await crawled(locked.url)  # quoted
    await crawled(f"redis://:{PASSWORD}@127.0.0.1:{locked.port}")
    await crawled(f"redis://default:{PASSWORD}@127.0.0.1:{locked.port}/1")


async def test_a_user_who_may_do_little_more_than_uttu_does(locked: RedisServer) -> None:
    await crawled(f"redis://crawler:s3cret@127.0.0.1:{locked.port}/0")


async def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server()
    with RedisServer("redis", certificate=tmp_path / "127.0.0.130.pem") as server:
        await crawled(f"{server.url}?ssl_ca_certs={authority.file}")
        await crawled(f"{server.url}?ssl_cert_reqs=none&ssl_check_hostname=no")


@pytest.mark.parametrize("password", ["", PASSWORD])
async def test_a_socket(password: str) -> None:
    with RedisServer(unix=True, password=password) as server:
        await crawled(server.url)


async def test_a_cluster_by_one_node_or_several() -> None:
    with RedisCluster(password=PASSWORD) as cluster:
        await crawled(cluster.url)
        login, ports = f":{PASSWORD}", [node.port for node in cluster.nodes]
        await crawled(f"redis+cluster://{login}@127.0.0.1:{ports[1]}")
        # One that is not there does no harm.
        await crawled(f"redis+cluster://default{login}@127.0.0.1:1,localhost:{ports[2]}/0")


async def test_sentinels_know_the_primary_and_its_successor() -> None:
    with RedisSentinel(password=PASSWORD, appendonly=True) as group:
        async with crawl_at(group.url) as store:
            first = await store.frontier.lease(2, "w")
            assert len(first) == 2
            former, replica = group.servers
            assert group.primary is former
            former.process.wait_until(lambda: _is_copied(former, replica), "be copied")
            former.kill()
            assert len(await asyncio.wait_for(crawl_on(store), 60)) == 2 * (COUNT - 2)
            assert group.primary is replica
            assert await store.frontier.settle([done(lease) for lease in first]) == set()
            await crawl_on(store)
            await check_whole(store)


def _is_copied(primary: RedisServer, replica: RedisServer) -> bool:
    return primary.info("replication")["master_repl_offset"] == replica.info("replication")["slave_repl_offset"]
