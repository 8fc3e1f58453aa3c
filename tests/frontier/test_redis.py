"""The contract on Redis, Valkey and a Redis Cluster."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from uttu.frontier.base import History, Inspector, Ledger, Memo, Outbox, Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.frontier.redis.frontier import RedisFrontier
from uttu.frontier.transfer import CrawlTransfer
from uttu.testing.clock import FakeClock
from uttu.testing.contracts.frontier import FrontierContract


class RedisStore:
    """See :class:`uttu.testing.contracts.store.StoreUnderTest`."""

    def __init__(self, catalog: RedisCatalog, name: str, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self._catalog = catalog
        self._name = name

    async def frontier(self, rules: Rules) -> RedisFrontier:
        frontier = self._open(rules).frontier
        assert isinstance(frontier, RedisFrontier)
        return frontier

    async def outbox(self) -> Outbox:
        return self._open().outbox

    async def memo(self) -> Memo:
        return self._open().memo

    async def ledger(self) -> Ledger:
        return self._open().ledger

    async def inspector(self) -> Inspector:
        return self._open().inspector

    async def history(self) -> History:
        return self._open().history

    async def transfer(self) -> CrawlTransfer:
        return self._open().transfer

    def _open(self, rules: Rules | None = None) -> CrawlStore:
        return self._catalog.store(self._name, 1, rules or Rules(), self.clock)


@pytest.fixture(params=["redis_url", "valkey_url", "redis_cluster_url"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    catalog = await RedisCatalog.connect(request.getfixturevalue(request.param))
    name = f"test-{secrets.token_hex(6)}"
    await catalog.create(name, Rules())
    yield RedisStore(catalog, name)
    await catalog.remove(name)
    await catalog.close()


class TestRedis(FrontierContract):
    """Everything a frontier must do."""
