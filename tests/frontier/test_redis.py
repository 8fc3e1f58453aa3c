"""The contract on Redis, Valkey and a Redis Cluster."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from weft.frontier.base import Inspector, Ledger, Memo, Outbox, Rules
from weft.frontier.depot import Store
from weft.frontier.moving import Mover
from weft.frontier.redis.depot import RedisDepot
from weft.frontier.redis.frontier import RedisFrontier
from weft.testing.clock import FakeClock
from weft.testing.frontier_contract import FrontierContract


class RedisStore:
    """See :class:`weft.testing.frontier_store.Store`."""

    def __init__(self, depot: RedisDepot, name: str, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self._depot = depot
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

    async def mover(self) -> Mover:
        return self._open().mover

    def _open(self, rules: Rules | None = None) -> Store:
        return self._depot.store(self._name, 1, rules or Rules(), self.clock)


@pytest.fixture(params=["redis_url", "valkey_url", "redis_cluster_url"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    depot = await RedisDepot.connect(request.getfixturevalue(request.param))
    name = f"test-{secrets.token_hex(6)}"
    await depot.create(name, Rules())
    yield RedisStore(depot, name)
    await depot.remove(name)
    await depot.close()


class TestRedis(FrontierContract):
    """Everything a frontier must do."""
