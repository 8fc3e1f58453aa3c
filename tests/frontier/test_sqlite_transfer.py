"""A crawl moves from one SQLite file to another."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from uttu.frontier.base import Rules
from uttu.frontier.sqlite import Database, SqliteFrontier, transfer
from uttu.frontier.sqlite.history import SqliteHistory
from uttu.frontier.sqlite.inspector import SqliteInspector
from uttu.frontier.sqlite.outbox import SqliteLedger, SqliteMemo, SqliteOutbox
from uttu.frontier.sqlite.transfer import SqliteTransfer
from uttu.frontier.transfer import HistoryBatch, ItemBatch, RequestBatch
from uttu.model import Done
from uttu.testing.clock import FakeClock
from uttu.testing.contracts.store import EASY, page
from uttu.testing.contracts.transfer import TransferContract, dump_all, load_all


class SqliteStore:
    """See :class:`uttu.testing.contracts.transfer.TransferStore`."""

    def __init__(self, path: Path, clock: FakeClock) -> None:
        self.path = path
        self.clock = clock
        self._opened = contextlib.AsyncExitStack()

    async def frontier(self, rules: Rules) -> SqliteFrontier:
        frontier = SqliteFrontier(self._database(), rules, self.clock)
        self._opened.push_async_callback(frontier.close)
        return frontier

    async def outbox(self) -> SqliteOutbox:
        return SqliteOutbox(self._database(), self.clock)

    async def memo(self) -> SqliteMemo:
        return SqliteMemo(self._database(), self.clock)

    async def ledger(self) -> SqliteLedger:
        return SqliteLedger(self._database(), self.clock)

    async def inspector(self) -> SqliteInspector:
        return SqliteInspector(self._database(), self.clock)

    async def history(self) -> SqliteHistory:
        return SqliteHistory(self._database(), self.clock)

    async def transfer(self) -> SqliteTransfer:
        return SqliteTransfer(self._database(), self.clock)

    async def aclose(self) -> None:
        await self._opened.aclose()

    def _database(self) -> Database:
        database = Database.open(self.path)
        self._opened.callback(database.close)
        return database


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with contextlib.aclosing(SqliteStore(tmp_path / "crawl.db", FakeClock())) as store:
        yield store


@pytest.fixture
async def other_store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """On another machine, whose clock is another."""
    async with contextlib.aclosing(SqliteStore(tmp_path / "other.db", FakeClock(1_800_000_000.0, 70.0))) as store:
        yield store


class TestSqliteToSqlite(TransferContract):
    pass


async def test_long_records_are_poured_a_few_at_a_time(
    store: SqliteStore, other_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_CHARACTERS", 25_000)
    frontier = await store.frontier(EASY)
    await frontier.put([page(number, meta={"text": "x" * 10_000}) for number in range(12)])
    await frontier.settle(
        [Done(lease=lease, items=(b'"%s"' % (b"x" * 10_000),)) for lease in await frontier.lease(6, "w")]
    )
    batches = await dump_all(store)
    assert [len(batch.requests) for batch in batches if isinstance(batch, RequestBatch)] == [3, 3]
    assert [len(batch.items) for batch in batches if isinstance(batch, ItemBatch)] == [3, 3]
    await load_all(other_store, batches)
    assert await (await other_store.frontier(EASY)).counts() == await frontier.counts()


async def test_only_the_latest_of_a_long_history_comes_along(store: SqliteStore, other_store: SqliteStore) -> None:
    with contextlib.closing(Database.open(store.path)) as database:
        await database.write(
            lambda db: db.execute(
                "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 100003)"
                " INSERT INTO history (fp, at, status, size, links, items, note) SELECT n, 0, 200, 0, 0, 0, '' FROM n"
            )
        )
    batches = await dump_all(store)
    for _ in range(2):
        await load_all(other_store, batches)
    done = [each.fingerprint for batch in batches if isinstance(batch, HistoryBatch) for each in batch.done]
    assert done == list(range(4, 100_004))
    with contextlib.closing(Database.open(other_store.path)) as database:
        (kept,) = await database.read(lambda db: db.execute("SELECT count(*) FROM history").fetchone())
    assert kept == 100_000
