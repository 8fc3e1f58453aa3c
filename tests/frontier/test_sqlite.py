"""The contract on SQLite, and what only a file on one machine can do wrong."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import SmallDisk

from uttu.errors import StoreError, StoreTooNew
from uttu.frontier.base import TRIM_STEP, Rules, Trimmed
from uttu.frontier.sqlite import Database, SqliteFrontier, settlement
from uttu.frontier.sqlite.history import SqliteHistory
from uttu.frontier.sqlite.inspector import SqliteInspector
from uttu.frontier.sqlite.layout import VERSION
from uttu.frontier.sqlite.outbox import SqliteLedger, SqliteMemo, SqliteOutbox
from uttu.model import Counts, Dead, Done, Outcome, Pace, Request, Retry
from uttu.model.inspection import OTHER_MESSAGES, DeadQuery
from uttu.testing.clock import FakeClock
from uttu.testing.contracts import listing, trimming
from uttu.testing.contracts.frontier import FrontierContract
from uttu.testing.contracts.store import EASY, HOST, lanes, lease_all, list_dead, list_lanes, numbers, page, pages


class HaltingClock(FakeClock):
    """In a process that is kept waiting after each look at it, for so many seconds."""

    halt = 0.0

    def time(self) -> float:
        now = super().time()
        self.advance(self.halt)
        return now

    def monotonic(self) -> float:
        now = super().monotonic()
        self.advance(self.halt)
        return now


TO_LAYOUT_3 = """
DROP TABLE samples; DROP TABLE events; DROP TABLE dead_groups;
CREATE TABLE dead_3 (
    fp INTEGER PRIMARY KEY, lane INTEGER NOT NULL, rank INTEGER NOT NULL, seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL, record TEXT NOT NULL, at REAL NOT NULL,
    kind TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL, status INTEGER NOT NULL
);
INSERT INTO dead_3 SELECT fp, lane, rank, seq, attempt, record, at, kind, reason, detail, status FROM dead;
DROP TABLE dead; ALTER TABLE dead_3 RENAME TO dead;
PRAGMA user_version = 3;
"""
TO_LAYOUT_2 = """
DROP TABLE marks; ALTER TABLE tally DROP COLUMN trimmed; ALTER TABLE tally DROP COLUMN cut; PRAGMA user_version = 2;
"""


class SqliteStore:
    """See :class:`uttu.testing.contracts.store.StoreUnderTest`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self._opened: list[SqliteFrontier | Database] = []

    async def frontier(self, rules: Rules) -> SqliteFrontier:
        frontier = SqliteFrontier(self._database(), rules, self.clock)
        self._opened.append(frontier)
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

    async def aclose(self) -> None:
        for opened in self._opened:
            closing = opened.close()
            if closing is not None:
                await closing

    def _database(self) -> Database:
        database = Database.open(self.path)
        self._opened.append(database)
        return database


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with contextlib.aclosing(SqliteStore(tmp_path / "crawl.db")) as store:
        yield store


class TestSqlite(FrontierContract):
    """Everything a frontier must do."""


async def test_a_wait_counts_from_when_the_lease_is_handed_out(store: SqliteStore) -> None:
    frontier = await store.frontier(Rules(pace=Pace(1.0, 1), ahead=1.0))
    await frontier.put(pages(2))
    (first,) = await frontier.lease(1, "w")
    await frontier.settle([Done(lease=first, touched=store.clock.monotonic())])
    write = frontier.database.write

    async def slow_write(*work: Any, **more: Any) -> Any:
        result = await write(*work, **more)
        store.clock.advance(0.25)
        return result

    frontier.database.write = slow_write  # type: ignore[method-assign]
    (second,) = await frontier.lease(1, "w")
    assert second.wait == 0.75


async def test_a_process_that_is_kept_waiting_while_it_settles_undercuts_no_delay(store: SqliteStore) -> None:
    store.clock = clock = HaltingClock()
    frontier = await store.frontier(Rules(pace=Pace(4.0, 1), ahead=4.0))
    await frontier.put(pages(2))
    (first,) = await frontier.lease(1, "w")
    touched = clock.monotonic()
    clock.halt = 0.125
    await frontier.settle([Done(lease=first, touched=touched)])
    clock.halt = 0.0
    (second,) = await frontier.lease(1, "w")
    assert second.wait > 0
    assert clock.monotonic() + second.wait >= touched + 4.0


class TestWorkers:
    """Workers of one machine know of each other by the locks they hold."""

    async def test_a_closed_worker_is_gone(self, store: SqliteStore) -> None:
        first, second = await store.frontier(EASY), await store.frontier(EASY)
        await first.put(pages(2))
        assert numbers(await first.lease(1, "host/first")) == [0]
        assert numbers(await second.lease(1, "second")) == [1]
        await first.close()
        store.clock.advance(1)
        assert numbers(await second.lease(9, "second")) == [0]

    async def test_two_living_workers_have_two_names(self, store: SqliteStore) -> None:
        first, second = await store.frontier(EASY), await store.frontier(EASY)
        await first.lease(1, "w")
        with pytest.raises(StoreError, match=r"'w' is at work .* name of its own"):
            await second.lease(1, "w")
        await first.close()
        assert await second.lease(1, "w") == []


class TestClaims:
    """What a process of this machine claimed is free when it is gone."""

    async def test_what_a_closed_owner_claimed_is_free_at_once(self, store: SqliteStore) -> None:
        database = Database.open(store.path)
        mine, yours = SqliteLedger(database, store.clock), await store.ledger()
        assert await mine.claim("drain out.jsonl", "me", 10)
        assert not await yours.claim("drain out.jsonl", "you", 10)
        database.close()
        assert await yours.claimed() == {}
        assert await yours.claim("drain out.jsonl", "you", 10)

    async def test_an_owner_may_have_the_name_of_a_worker(self, store: SqliteStore) -> None:
        frontier, ledger = await store.frontier(EASY), await store.ledger()
        await frontier.put(pages(2))
        assert await ledger.claim("role", "w", 10)
        assert numbers(await frontier.lease(1, "w")) == [0]
        store.clock.advance(2)
        assert numbers(await frontier.lease(9, "w")) == [1]
        assert await ledger.claimed() == {"role": "w"}


class TestOpening:
    """Files that can't be used, and what is said about them."""

    def test_a_file_of_a_newer_version(self, tmp_path: Path) -> None:
        path = tmp_path / "crawl.db"
        Database.open(path).close()
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA user_version = 1000")
        with pytest.raises(StoreTooNew, match=r"newer Uttu \(layout 1000.*Upgrade Uttu"):
            Database.open(path)

    async def test_a_file_of_the_first_layout_goes_on(self, store: SqliteStore) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(3))
        await frontier.close()
        with contextlib.closing(sqlite3.connect(store.path)) as db:
            db.executescript(
                f"{TO_LAYOUT_3} {TO_LAYOUT_2}"
                "DROP TABLE claims; ALTER TABLE lanes DROP COLUMN pinned; ALTER TABLE lanes DROP COLUMN own_delay;"
                "ALTER TABLE lanes DROP COLUMN own_cap; PRAGMA user_version = 1; VACUUM;"
            )
        frontier, ledger, inspector = await store.frontier(EASY), await store.ledger(), await store.inspector()
        assert numbers(await frontier.lease(1, "w")) == [0]
        assert await ledger.claim("role", "me", 10)
        await inspector.pin(HOST, 5.0)
        assert [lane.pinned for lane in await list_lanes(inspector)] == [True]
        await inspector.pin(HOST, None)
        assert [(lane.pinned, lane.pace) for lane in await list_lanes(inspector)] == [(False, EASY.pace)]
        with contextlib.closing(sqlite3.connect(store.path)) as db:
            assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)

    async def test_a_file_of_the_second_layout_goes_on_and_is_trimmed(self, store: SqliteStore) -> None:
        items = await trimming.fill(store)
        await store.aclose()
        with contextlib.closing(sqlite3.connect(store.path)) as db:
            db.executescript(f"{TO_LAYOUT_3} {TO_LAYOUT_2}")
        outbox, frontier = await store.outbox(), await store.frontier(EASY)
        assert await outbox.trimmed() == Trimmed()
        assert len(await outbox.items(0, 10_000)) == len(items)
        await trimming.move(store, "out", items[-1])
        assert await trimming.trim(outbox, "out") == 0
        await frontier.put([page(10_000)])
        (lease,) = await frontier.lease(1, "another")
        await frontier.settle([Done(lease=lease, items=(b"1",) * TRIM_STEP)])
        await trimming.move(store, "out", (await outbox.items(items[-1].position, 1000))[-1])
        # Of what came before there were marks nothing is known but that it came before the first of them.
        assert await trimming.trim(outbox, "out") == 0
        await frontier.put([page(10_001)])
        (lease,) = await frontier.lease(1, "another")
        await frontier.settle([Done(lease=lease, items=(b"1",))])
        assert await trimming.trim(outbox, "out") == len(items) + TRIM_STEP

    async def test_dead_letters_of_the_third_layout_are_grouped(self, store: SqliteStore) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await listing.bury(store, frontier, [*listing.DeadPageContract.REASONS, ("http", "")])
        groups, letters = await inspector.dead_groups(), await list_dead(inspector)
        await store.aclose()
        with contextlib.closing(sqlite3.connect(store.path)) as db:
            db.executescript(TO_LAYOUT_3)
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        assert await listing.check_groups(inspector) == groups
        assert await list_dead(inspector) == letters
        await listing.bury(store, frontier, [("http", "answered with status 404")], first=20)
        await listing.check_groups(inspector)
        assert await inspector.revive(message="answered with status 404") == 4
        await listing.check_groups(inspector)
        assert await (await store.history()).samples(0.0) == []
        assert_consistent(store)

    async def test_many_messages_of_the_third_layout(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(listing.MOST_DEAD_GROUPS, 2)
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await listing.bury(store, frontier, [("http", reason) for reason in "aabcd"])
        before = await inspector.dead_groups()
        await store.aclose()
        with contextlib.closing(sqlite3.connect(store.path)) as db:
            db.executescript(TO_LAYOUT_3)
        groups = await (await store.inspector()).dead_groups()
        assert groups == before
        assert [group.message for group in groups] == ["a", OTHER_MESSAGES, "b"]
        assert_consistent(store)

    def test_not_a_database(self, tmp_path: Path) -> None:
        path = tmp_path / "crawl.db"
        path.write_bytes(b"url,title\n" * 1_000)
        with pytest.raises(StoreError, match=r"crawl\.db.*not a database.*--fresh"):
            Database.open(path)
        assert path.read_bytes() == b"url,title\n" * 1_000

    def test_the_database_of_another_program_is_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "books.db"
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.executescript("CREATE TABLE books (title); INSERT INTO books VALUES ('Emma'); PRAGMA user_version = 1")
        before = path.read_bytes()
        with pytest.raises(StoreError, match=r"books\.db is a database, but no crawl"):
            Database.open(path)
        assert path.read_bytes() == before

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreError, match=r"crawl\.db: (Not a directory|File exists)"):
            Database.open(tmp_path / "file" / "folder" / "crawl.db")

    def test_a_crawl_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="there is no crawl at"):
            Database.open(tmp_path / "crawl.db", create=False)
        assert list(tmp_path.iterdir()) == []


class TestFailures:
    """What fails leaves no trace, and what was committed stays."""

    async def test_a_failed_put_leaves_no_trace(self, store: SqliteStore) -> None:
        frontier = await store.frontier(EASY)
        with pytest.raises(TypeError):
            await frontier.put([*pages(2, "a.example"), unserialisable("a.example")])
        assert await frontier.counts() == Counts()
        await self.assert_lanes_are_right(frontier)

    async def test_a_failed_put_that_nobody_waited_for_leaves_no_trace(self, store: SqliteStore) -> None:
        frontier = await store.frontier(EASY)
        with store.path.with_name("crawl.db.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            putting = asyncio.create_task(frontier.put([*pages(2, "a.example"), unserialisable("a.example")]))
            await asyncio.sleep(0)
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
        assert await frontier.counts() == Counts()
        await self.assert_lanes_are_right(frontier)

    async def assert_lanes_are_right(self, frontier: SqliteFrontier) -> None:
        """Lanes made by the failed call are not remembered: their numbers belong to others by now."""
        assert await frontier.put(pages(1, "b.example")) == 1
        assert await frontier.put(pages(1, "a.example")) == 1
        assert sorted(lanes(await frontier.lease(9, "w"))) == ["a.example", "b.example"]

    async def test_a_failed_settle_leaves_no_trace(self, store: SqliteStore) -> None:
        frontier, outbox = await store.frontier(EASY), await store.outbox()
        await frontier.put(pages(2))
        one, two = await frontier.lease(2, "w")
        good = Done(lease=one, children=(page(5, "b.example"),), items=(b"1",), pace=Pace(60.0, 1))
        with pytest.raises(TypeError):
            await frontier.settle([good, Done(lease=two, children=(unserialisable("c.example"),), items=(b"2",))])
        assert await frontier.counts() == Counts(leased=2)
        assert await outbox.items(0, 9) == []
        assert await frontier.settle([good, Done(lease=two, children=(page(5, "c.example"),), items=(b"2",))]) == set()
        assert sorted(lanes(await frontier.lease(9, "w"))) == ["b.example", "c.example"]
        assert len(await outbox.items(0, 9)) == 2
        assert_consistent(store)

    async def test_a_full_file(self, store: SqliteStore) -> None:
        frontier = await store.frontier(EASY)
        database = frontier.database

        def room(pages: int) -> None:
            database._connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()

        await self.run_out_of_space(store, frontier, full=lambda: room(1), free=lambda: room(2**30))

    async def test_a_full_disk(self, small_disk: SmallDisk) -> None:
        async with contextlib.aclosing(SqliteStore(small_disk.path / "crawl.db")) as store:
            frontier = await store.frontier(EASY)
            await self.run_out_of_space(store, frontier, full=small_disk.fill, free=small_disk.free)

    async def run_out_of_space(
        self, store: SqliteStore, frontier: SqliteFrontier, full: Callable[[], None], free: Callable[[], None]
    ) -> None:
        big = [page(number, f"h{number}.example", meta={"text": "x" * 500}) for number in range(400)]
        await frontier.put(pages(20))
        leases = await frontier.lease(10, "w")
        outcomes = [Done(lease=leases[0], children=tuple(big[:200]), items=(b"1",)), Done(lease=leases[1])]
        full()
        with pytest.raises(StoreError, match=r"crawl\.db: .*full.*Free space"):
            await frontier.put(big)
        with pytest.raises(StoreError, match="Free space"):
            await frontier.settle(outcomes)
        assert await frontier.counts() == Counts(pending=10, leased=10)
        free()
        assert await frontier.settle(outcomes) == set()
        assert await frontier.put(big) == 200
        assert len(await lease_all(frontier)) == 410
        assert await frontier.counts() == Counts(leased=8, done=412, items=1)
        assert_consistent(store)


class TestInspections:
    """Reads for operators run beside the crawl."""

    async def test_a_long_look_holds_up_nobody(self, store: SqliteStore) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(2))
        looking, enough = threading.Event(), threading.Event()

        def look(db: sqlite3.Connection) -> list[int]:
            before = db.execute("SELECT count(*) FROM queue").fetchone()[0]
            looking.set()
            assert enough.wait(30)
            return [before, db.execute("SELECT count(*) FROM queue").fetchone()[0]]

        inspection = asyncio.create_task(frontier.database.inspect(look))
        assert await asyncio.to_thread(looking.wait, 30)
        assert await lease_all(frontier) == [0, 1]
        await frontier.put([page(2), page(3), page(4)])
        assert (await frontier.counts()).pending == 3
        enough.set()
        assert await inspection == [2, 2], "one snapshot"

    async def test_it_changes_nothing(self, store: SqliteStore) -> None:
        frontier = await store.frontier(EASY)
        with pytest.raises(StoreError, match="readonly"):
            await frontier.database.inspect(lambda db: db.execute("DELETE FROM lanes"))

    async def test_closing_ends_a_look(self, store: SqliteStore) -> None:
        database = Database.open(store.path)
        looking = threading.Event()

        def look(db: sqlite3.Connection) -> None:
            looking.set()
            while True:
                db.execute(
                    "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 9999) SELECT sum(n) FROM n"
                )

        inspections = [asyncio.create_task(database.inspect(look)) for _ in range(2)]
        assert await asyncio.to_thread(looking.wait, 30)
        database.close()
        for inspection in inspections:
            with pytest.raises(StoreError, match=r"interrupted|closed"):
                await inspection
        with pytest.raises(StoreError, match="closed"):
            await database.inspect(look)

    async def test_a_file_that_is_gone_is_not_made_again(self, store: SqliteStore) -> None:
        database = Database.open(store.path)
        store.path.unlink()
        with pytest.raises(StoreError, match="unable to open"):
            await database.inspect(lambda db: db.execute("SELECT * FROM lanes"))
        database.close()
        assert not store.path.exists()

    async def test_no_list_of_dead_letters_looks_at_all_of_them(self, store: SqliteStore) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await listing.bury(store, frontier, [*listing.DeadPageContract.REASONS])
        await inspector.dead_groups()
        statements = set[str]()
        database = inspector.database
        await database.inspect(lambda db: db.set_trace_callback(statements.add))
        message = "answered with status 404"
        for kind, chosen in (("", ""), ("http", ""), ("http", message), ("", message)):
            first = await inspector.dead(DeadQuery(kind=kind, message=chosen, limit=1))
            await inspector.dead(DeadQuery(kind=kind, message=chosen, limit=1, after=first.next, match="status"))
        await inspector.dead_groups()
        await database.inspect(lambda db: db.set_trace_callback(None))
        selects = [statement for statement in statements if statement.startswith("SELECT")]
        plans = {f"{row[-1]} in {each}" for each in selects for row in await database.inspect(_plan, each)}
        assert len(selects) > 8
        assert [plan for plan in plans if plan.startswith("USE TEMP B-TREE") and "dead_groups" not in plan] == []
        whole = [plan for plan in plans if plan.startswith("SCAN dead") and "dead_groups" not in plan]
        assert [plan for plan in whole if "USING INDEX" not in plan and "USING COVERING INDEX" not in plan] == []


class TestFile:
    """What is in the file, and what it costs to get at it."""

    @pytest.mark.parametrize("seed", range(4))
    async def test_the_tally_is_what_the_tables_hold(
        self, store: SqliteStore, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Recent fingerprints join the others several times during this run.
        monkeypatch.setattr(settlement, "_FEWEST_RECENT", 20)
        draw = random.Random(seed)
        rules = Rules(pace=Pace(0.0, draw.choice([0, 1, 3])), lease_seconds=20, max_losses=2)
        frontiers = [await store.frontier(rules), await store.frontier(rules)]
        for _ in range(60):
            worker = draw.randrange(2)
            frontier = frontiers[worker]
            await frontier.put(random_pages(draw))
            leases = await frontier.lease(draw.randrange(10), f"w{worker}")
            outcomes: list[Outcome] = []
            for lease in leases:
                match draw.randrange(5):
                    case 0 | 1:
                        outcomes.append(Done(lease=lease, children=tuple(random_pages(draw)), items=(b"1",), size=3))
                    case 2:
                        outcomes.append(Retry(lease=lease, after=draw.choice([0.0, 5.0])))
                    case 3:
                        outcomes.append(Dead(lease=lease, kind="http", reason="404", items=(b"2", b"3")))
            await frontier.settle(outcomes)
            store.clock.advance(draw.choice([0, 1, 5]))
            assert_consistent(store)
        with contextlib.closing(sqlite3.connect(store.path)) as db:
            assert db.execute("SELECT count(*) FROM seen").fetchone() > (40,)

    async def test_nothing_is_looked_for_in_a_whole_table(self, store: SqliteStore) -> None:
        frontier, statements = await store.frontier(Rules(order="priority", max_pages=99, max_per_lane=99)), set[str]()
        database = frontier.database
        await frontier.lease(1, "w")
        await database.read(lambda db: db.set_trace_callback(statements.add))
        await frontier.put([*pages(9), page(1, "b.example")])
        one, two = await frontier.lease(9, "w")
        await frontier.extend([one])
        await frontier.settle([Done(lease=one, children=tuple(pages(20)), items=(b"1",)), Retry(lease=two, after=0.25)])
        store.clock.advance(0.5)
        one, two = await frontier.lease(9, "w")
        await frontier.settle([Dead(lease=one, kind="http", reason="404")])
        await frontier.hold(HOST, 5, "Retry-After")
        store.clock.advance(70)
        assert numbers(await frontier.lease(9, "w")) == [2]
        await frontier.counts()
        await database.read(lambda db: db.set_trace_callback(None))
        tables = ("seen", "recent", "lanes", "queue", "delayed", "leases", "dead", "history", "outbox")
        plans = {
            f"{detail} in {statement}"
            for statement in statements
            if statement.startswith(("SELECT", "INSERT", "UPDATE", "DELETE"))
            for *_, detail in await database.read(_plan, statement)
        }
        assert [plan for plan in plans if plan.startswith("SEARCH queue")]
        assert [plan for plan in plans if plan.startswith("SCAN ") and plan.split()[1] in tables] == []


def _plan(db: sqlite3.Connection, statement: str) -> list[tuple[Any, ...]]:
    return db.execute("EXPLAIN QUERY PLAN " + statement).fetchall()


def random_pages(draw: random.Random) -> list[Request]:
    return [page(draw.randrange(300), f"h{draw.randrange(5)}.example") for _ in range(draw.randrange(6))]


def unserialisable(host: str) -> Request:
    return page(99, host, meta={"not data": object()})


def assert_consistent(store: SqliteStore) -> None:
    """The counts are those of the tables, in all and lane by lane, and every request is in one place."""
    with contextlib.closing(sqlite3.connect(store.path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert (
            db.execute("SELECT pending, leased, delayed, done, dead, items, bytes FROM tally").fetchone()
            == db.execute(
                "SELECT (SELECT count(*) FROM queue), (SELECT count(*) FROM leases), (SELECT count(*) FROM delayed),"
                " (SELECT count(*) FROM history), (SELECT count(*) FROM dead), (SELECT count(*) FROM outbox),"
                " (SELECT ifnull(sum(size), 0) FROM history)"
            ).fetchone()
        )
        assert (
            db.execute("SELECT id, count FROM dead_groups ORDER BY id").fetchall()
            == db.execute("SELECT grp, count(*) FROM dead GROUP BY grp ORDER BY grp").fetchall()
        )
        places = " UNION ALL ".join(
            f"SELECT fp FROM {table}" for table in ("queue", "leases", "delayed", "history", "dead")
        )
        assert (
            db.execute(f"SELECT fp FROM ({places}) ORDER BY fp").fetchall()
            == db.execute("SELECT fp FROM (SELECT fp FROM seen UNION ALL SELECT fp FROM recent) ORDER BY fp").fetchall()
        )
        assert (
            db.execute("SELECT seq, recent FROM tally").fetchone()
            == db.execute(
                "SELECT (SELECT count(*) FROM seen) + (SELECT count(*) FROM recent), (SELECT count(*) FROM recent)"
            ).fetchone()
        )
        assert (
            db.execute("SELECT id, pending, active FROM lanes ORDER BY id").fetchall()
            == db.execute(
                "SELECT id, (SELECT count(*) FROM queue WHERE lane = id),"
                " (SELECT count(*) FROM leases WHERE leases.lane = lanes.id) FROM lanes ORDER BY id"
            ).fetchall()
        )
