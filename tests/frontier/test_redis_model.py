"""The Redis frontier does as the model does."""

from __future__ import annotations

import secrets
from typing import ClassVar

import pytest
from tests.frontier.machine import SETTINGS, FrontierMachine

from weft.frontier.base import Frontier, Rules, StoredItem
from weft.frontier.redis.depot import RedisDepot


class RedisMachine(FrontierMachine):
    url: ClassVar[str]

    def make(self, coin: bool) -> None:
        self.depot = self.run(RedisDepot.connect(self.url))
        self.name = f"model-{secrets.token_hex(6)}"
        self.run(self.depot.create(self.name, Rules()))

    def opened(self, rules: Rules) -> Frontier:
        return self.depot.store(self.name, 1, rules, self.clock).frontier

    def items(self) -> list[StoredItem]:
        return self.run(self.depot.store(self.name, 1, Rules(), self.clock).outbox.items(0, 10_000))

    def remove(self) -> None:
        self.run(self.depot.remove(self.name))
        self.run(self.depot.close())


@pytest.fixture(scope="module", autouse=True)
def _server(redis_url: str) -> None:
    RedisMachine.url = redis_url


TestRedisModel = RedisMachine.TestCase
TestRedisModel.settings = SETTINGS
