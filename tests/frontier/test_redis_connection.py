"""A server that can't be used is refused at once, in words that say what to do and no password."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.fetch.certificates import Authority
from tests.frontier.redis_crawls import check_whole, crawl_at, crawl_on, depot_at
from tests.frontier.test_redis import RedisStore
from tests.harness.servers import RedisCluster, RedisSentinel, RedisServer
from tests.harness.servers.programs import Kind

from uttu.errors import StoreError
from uttu.frontier.base import Rules
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.testing.contracts.frontier import FrontierContract
from uttu.testing.contracts.store import EASY


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def locked() -> Iterator[RedisServer]:
    with RedisServer(password="s3cret") as server:
        yield server


async def refusal(url: str) -> str:
    """What is said of a server that can't be used."""
    with pytest.raises(StoreError) as refused:
        await asyncio.wait_for(RedisCatalog.connect(url), 30)
    message = str(refused.value)
    assert "s3cret" not in message
    assert "wrongpw" not in message
    assert "\n" not in message
    return message


async def test_nobody_listens() -> None:
    assert "Check whether the server runs there" in await refusal("redis://:wrongpw@127.0.0.1:1/0")
    assert "Check whether the server runs there" in await refusal("redis+cluster://:wrongpw@127.0.0.1:1")
    assert "The sentinels do not answer" in await refusal("redis+sentinel://:wrongpw@127.0.0.1:1/uttu")
    assert "Check whether the server runs, and the path of its socket" in await refusal(
        "redis+unix://:wrongpw@/not/there.sock"
    )


async def test_an_unknown_host() -> None:
    assert "Check the name of the host" in await refusal("redis://:wrongpw@nowhere.invalid/0")
    assert "Check the name of the host" in await refusal("redis+cluster://:wrongpw@nowhere.invalid")


async def test_a_wrong_password(locked: RedisServer) -> None:
    assert "Check the user and the password" in await refusal(f"redis://:wrongpw@127.0.0.1:{locked.port}/0")
    assert "Check the user and the password" in await refusal(f"redis://me:wrongpw@127.0.0.1:{locked.port}/0")


async def test_a_password_where_none_is_wanted(server: RedisServer) -> None:
    assert "The server has no password. Remove it from the address" in await refusal(
        f"redis://:wrongpw@127.0.0.1:{server.port}/0"
    )


async def test_a_password_that_is_missing(locked: RedisServer) -> None:
    assert "needs a password" in await refusal(f"redis://127.0.0.1:{locked.port}/0")


async def test_a_database_that_is_not_there(server: RedisServer) -> None:
    assert "number of the database" in await refusal(f"redis://127.0.0.1:{server.port}/99")


async def test_a_read_only_replica(server: RedisServer) -> None:
    with RedisServer(replica_of=server, settings={"repl-diskless-sync-delay": "0"}) as replica:
        assert "Give the address of its primary" in await refusal(replica.url)


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_a_cluster_and_a_server_that_is_none(server: RedisServer, kind: Kind) -> None:
    assert "The server is not a cluster. Write the address as redis://" in await refusal(
        f"redis+cluster://127.0.0.1:{server.port}"
    )
    with RedisCluster(kind, password="s3cret") as cluster:
        node = cluster.nodes[0]
        assert "Write the address as redis+cluster://" in await refusal(node.url)
        assert "Check the user and the password" in await refusal(f"redis+cluster://:wrongpw@127.0.0.1:{node.port}")
        assert "needs a password" in await refusal(f"redis+cluster://127.0.0.1:{node.port}")


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_sentinels_and_what_is_none(server: RedisServer, kind: Kind) -> None:
    with RedisSentinel(kind) as group:
        assert "know no reachable primary of that name" in await refusal(group.url.replace("/uttu/", "/shop/"))
        assert "The server is a sentinel" in await refusal(f"redis://127.0.0.1:{group.sentinels[0].port}")
    assert "The server is not a sentinel" in await refusal(f"redis+sentinel://127.0.0.1:{server.port}/uttu")


async def test_keys_that_may_be_dropped() -> None:
    with RedisServer(maxmemory="50mb", settings={"maxmemory-policy": "allkeys-lru"}) as server:
        assert "maxmemory-policy allkeys-lru" in await refusal(server.url)
        server.ask("CONFIG", "SET", "maxmemory", "0")
        async with depot_at(server.url):
            pass


async def test_an_authority_that_is_not_known(tmp_path: Path, server: RedisServer) -> None:
    Authority(tmp_path).server()
    with RedisServer("redis", certificate=tmp_path / "127.0.0.130.pem") as secure:
        assert "?ssl_ca_certs=FILE" in await refusal(secure.url)
        assert "write rediss://" in await refusal(f"redis://127.0.0.1:{secure.port}/0")
    plain = f"rediss://127.0.0.1:{server.port}/0?socket_connect_timeout=0.5"
    assert "write redis:// without the second s" in await refusal(plain)


@asynccontextmanager
async def _answering(answer: Callable[[bytes], bytes]) -> AsyncIterator[str]:
    """Something at a port that is no Redis server of today."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(1 << 16):
            writer.write(answer(asked))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def _info(version: str) -> Callable[[bytes], bytes]:
    text = f"# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\nrole:master\r\n".encode()

    def answer(asked: bytes) -> bytes:
        if b"INFO\r\n" in asked and b"SETINFO" not in asked:
            return b"$%d\r\n%s\r\n" % (len(text), text)
        return b"-ERR unknown command\r\n" * asked.count(b"*")

    return answer


@pytest.mark.parametrize("version", ["2.8.24", "6.0.16", "6.1.242"])
async def test_a_server_too_old(version: str) -> None:
    async with _answering(_info(version)) as place:
        assert f"Redis {version} is too old. Uttu needs 6.2 or newer" in await refusal(f"redis://{place}/0")


async def test_another_program() -> None:
    async with _answering(lambda _: b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as place:
        assert "Is it another program?" in await refusal(f"redis://{place}/0")
        assert await refusal(f"redis+cluster://{place}")


async def test_one_who_may_not_use_functions_gets_scripts(locked: RedisServer) -> None:
    locked.ask("ACL", "SETUSER", "scripts", "on", ">s3cret", "~uttu:*", "+@all", "-function", "-fcall", "-script")
    async with crawl_at(f"redis://scripts:s3cret@127.0.0.1:{locked.port}/0") as store:
        await crawl_on(store)
        await check_whole(store)
    assert locked.ask("FUNCTION", "LIST") == []


@pytest.mark.parametrize(
    "rules", [("~uttu:*", "+@all", "-@scripting"), ("~shop:*", "+@all"), ("~uttu:*", "+@all", "-info"), ("~*", "+get")]
)
async def test_one_who_may_not_do_what_is_needed(locked: RedisServer, rules: tuple[str, ...]) -> None:
    locked.ask("ACL", "SETUSER", "guest", "reset", "on", ">s3cret", *rules)
    assert "The user needs INFO, EVAL" in await refusal(f"redis://guest:s3cret@127.0.0.1:{locked.port}/0")


async def test_a_server_that_keeps_nothing_on_disk_is_pointed_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "uttu.frontier"):
        with RedisServer(appendonly=True) as server:
            async with depot_at(server.url):
                assert not caplog.messages
        with RedisServer() as server:
            async with depot_at(server.url):
                assert "appendonly no" in caplog.text


async def test_a_connection_that_failed_leaves_nothing_open(locked: RedisServer) -> None:
    await refusal(f"redis://:wrongpw@127.0.0.1:{locked.port}/0")
    await refusal(f"redis://:s3cret@127.0.0.1:{locked.port}/99")
    assert len(str(locked.ask("CLIENT", "LIST")).splitlines()) == 1


class TestScripts(FrontierContract):
    """The contract where there are no functions, as on Redis 6.2."""

    @pytest.fixture
    async def store(self, locked: RedisServer) -> AsyncIterator[RedisStore]:
        locked.ask("ACL", "SETUSER", "old", "on", ">s3cret", "~uttu:*", "+@all", "-function", "-fcall")
        async with depot_at(f"redis://old:s3cret@127.0.0.1:{locked.port}/0") as catalog:
            await catalog.create("scripts", Rules())
            yield RedisStore(catalog, "scripts")
            assert (await catalog.open("scripts", EASY)) is not None
            await catalog.remove("scripts")
