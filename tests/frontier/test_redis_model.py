"""The Redis frontier does as the model does."""

from __future__ import annotations

import secrets
from typing import ClassVar

import pytest
from tests.frontier.state_machine import SETTINGS, FrontierMachine

from uttu.frontier.base import Frontier, Ledger, Outbox, Rules
from uttu.frontier.redis.catalog import RedisCatalog


class RedisMachine(FrontierMachine):
    url: ClassVar[str]

    def make(self, coin: bool) -> None:
        self.catalog = self.run(RedisCatalog.connect(self.url))
        self.name = f"model-{secrets.token_hex(6)}"
        self.run(self.catalog.create(self.name, Rules()))

    def opened(self, rules: Rules) -> Frontier:
        return self.catalog.store(self.name, 1, rules, self.clock).frontier

    def shelves(self) -> tuple[Outbox, Ledger]:
        store = self.catalog.store(self.name, 1, Rules(), self.clock)
        return store.outbox, store.ledger

    def remove(self) -> None:
        self.run(self.catalog.remove(self.name))
        self.run(self.catalog.close())


@pytest.fixture(scope="module", autouse=True)
def _server(redis_url: str) -> None:
    RedisMachine.url = redis_url


TestRedisModel = RedisMachine.TestCase
TestRedisModel.settings = SETTINGS
