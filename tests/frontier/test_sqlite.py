from __future__ import annotations
import pytest
from collections.abc import AsyncIterator
from pathlib import Path
pytest.register_assert_rewrite(*(f"weft.testing.frontier_{p}" for p in ("lanes","leases","settling","shelves")))
from weft.frontier.base import Frontier, Memo, Outbox, Rules
from weft.frontier.sqlite import Database, SqliteFrontier
from weft.frontier.sqlite.shelves import SqliteMemo, SqliteOutbox
from weft.testing.clock import FakeClock
from weft.testing.frontier_contract import FrontierContract


class SqliteStore:
    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.path = path
        self._opened: list[Database] = []

    async def frontier(self, rules: Rules) -> SqliteFrontier:
        return SqliteFrontier(self._open(), rules, self.clock)

    async def outbox(self) -> SqliteOutbox:
        return SqliteOutbox(self._open())

    async def memo(self) -> SqliteMemo:
        return SqliteMemo(self._open(), self.clock)

    def _open(self) -> Database:
        database = Database.open(self.path)
        self._opened.append(database)
        return database

    def close(self) -> None:
        for database in self._opened:
            database.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "crawl.db")
    yield store
    store.close()

class TestSqlite(FrontierContract):
    pass
