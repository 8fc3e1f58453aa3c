"""A crawl moves between SQLite and Redis, and from one Redis server to another."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.frontier.test_redis import RedisStore
from tests.frontier.test_sqlite_transfer import SqliteStore

from uttu.frontier.base import Rules
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.testing.clock import FakeClock
from uttu.testing.contracts.transfer import TransferContract

ELSEWHERE = (1_800_000_000.0, 70.0)


@contextlib.asynccontextmanager
async def on_redis(url: str, clock: FakeClock) -> AsyncIterator[RedisStore]:
    catalog = await RedisCatalog.connect(url)
    name = f"test-{secrets.token_hex(6)}"
    await catalog.create(name, Rules())
    yield RedisStore(catalog, name, clock)
    await catalog.remove(name)
    await catalog.close()


@pytest.fixture
async def on_redis_here(redis_url: str) -> AsyncIterator[RedisStore]:
    async with on_redis(redis_url, FakeClock()) as store:
        yield store


@pytest.fixture
async def on_redis_there(valkey_url: str) -> AsyncIterator[RedisStore]:
    async with on_redis(valkey_url, FakeClock(*ELSEWHERE)) as store:
        yield store


class TestSqliteToRedis(TransferContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        async with contextlib.aclosing(SqliteStore(tmp_path / "crawl.db", FakeClock())) as store:
            yield store

    @pytest.fixture
    def other_store(self, on_redis_there: RedisStore) -> RedisStore:
        return on_redis_there


class TestRedisToSqlite(TransferContract):
    @pytest.fixture
    def store(self, on_redis_here: RedisStore) -> RedisStore:
        return on_redis_here

    @pytest.fixture
    async def other_store(self, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        async with contextlib.aclosing(SqliteStore(tmp_path / "crawl.db", FakeClock(*ELSEWHERE))) as store:
            yield store


class TestRedisToRedis(TransferContract):
    @pytest.fixture
    def store(self, on_redis_here: RedisStore) -> RedisStore:
        return on_redis_here

    @pytest.fixture
    def other_store(self, on_redis_there: RedisStore) -> RedisStore:
        return on_redis_there
