"""The nemesis: its schedule and its checks, a run in which everything happens, and bugs that it must find."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.nemesis import Event, Kind, Plan, Result, checks, draw, journal, report, run
from tests.harness.nemesis.census import Census
from tests.harness.nemesis.checks import Evidence, Freeze
from tests.harness.nemesis.journal import Granted
from tests.harness.nemesis.schedule import MOST_WORKERS
from tests.harness.servers import RedisServer
from uttu.frontier.base import Rules
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.model import Pace, Request, Retry
from uttu.testing.site import Record, Site

ONE, OTHER = "127.77.0.1/p/0", "127.77.0.1/p/1"


class TestSchedule:
    @given(st.integers(0, 1 << 32))
    def test_a_seed_is_a_plan_that_can_be_had_again(self, seed: int) -> None:
        plan = draw(seed)
        assert plan == draw(seed)
        assert [event.at for event in plan.events] == sorted(event.at for event in plan.events)
        assert all(0 < event.at < 1 and 0 <= event.pick < 1 for event in plan.events)

    @given(st.integers(0, 1 << 32))
    def test_a_freeze_outlasts_a_lease(self, seed: int) -> None:
        plan = draw(seed)
        frozen = [event.seconds for event in plan.events if event.kind is Kind.FREEZE]
        assert all(seconds > plan.lease_seconds for seconds in frozen)

    @given(st.integers(0, 1 << 32))
    def test_a_worker_is_always_left(self, seed: int) -> None:
        plan = draw(seed)
        workers = plan.workers
        for event in plan.events:
            workers += {Kind.JOIN: 1, Kind.LEAVE: -1}.get(event.kind, 0)
            assert 1 <= workers <= MOST_WORKERS

    def test_twenty_seeds_have_everything(self) -> None:
        assert {event.kind for seed in range(1, 21) for event in draw(seed).events} == set(Kind)


class TestJournal:
    def test_what_took_effect_is_read(self) -> None:
        whole = _commands(["SET", "a", "1"], ["MULTI"], ["HSET", "b", "c", "d\r\n"], ["EXEC"])
        assert list(journal.commands(b"#TS:1\r\n" + whole)) == [[b"SET", b"a", b"1"], [b"HSET", b"b", b"c", b"d\r\n"]]

    def test_what_a_killed_server_left_half_written_is_not(self) -> None:
        whole = _commands(["SET", "a", "1"], ["MULTI"], ["SET", "b", "2"], ["EXEC"])
        for end in range(len(whole)):
            found = list(journal.commands(whole[:end]))
            assert found in ([], [[b"SET", b"a", b"1"]]), end

    async def test_a_servers_leases_are_found(self) -> None:
        with RedisServer(appendonly=True, settings=journal.SETTINGS) as server:
            catalog = await RedisCatalog.connect(server.url)
            store = await catalog.create("test", Rules(pace=Pace(0, 0)))
            await store.frontier.put([Request(url=f"http://127.77.0.1:80/p/{number}") for number in range(2)])
            (given,) = await store.frontier.lease(1, "host-7-abc")
            await store.frontier.settle([Retry(lease=given)])
            await store.frontier.lease(2, "host-8-abc")
            await catalog.close()
            found = journal.read(server.process.folder)
        assert found[0].id == given.id
        assert [(lease.page, lease.worker, lease.attempt, lease.losses) for lease in found] == [
            (ONE, "host-7-abc", 1, 0),
            (ONE, "host-8-abc", 2, 0),
            (OTHER, "host-8-abc", 1, 0),
        ]

    def test_a_lease_is_lost_if_the_next_one_counts_it(self) -> None:
        leases = [_granted(1, ONE), _granted(2, OTHER), _granted(3, ONE, attempt=2, losses=1), _granted(4, OTHER)]
        assert [lease.id for lease in journal.lost(leases)] == [1]


class TestChecks:
    def test_a_clean_run(self) -> None:
        assert checks.findings(_clean()) == []

    def test_a_page_without_a_row(self) -> None:
        assert "have no row: 127.77.0.1/p/1" in _found(rows=[ONE])

    def test_a_page_with_two_rows(self) -> None:
        assert "more than one row: 127.77.0.1/p/0" in _found(rows=[ONE, ONE, OTHER])

    def test_a_row_of_another_page(self) -> None:
        assert "of no page of the site: elsewhere/p/9" in _found(rows=[ONE, OTHER, "elsewhere/p/9"])

    @pytest.mark.parametrize("name", Census.__struct_fields__[:-1])
    def test_a_count_that_is_off(self, name: str) -> None:
        books = _clean().books[0][1]
        off = msgspec.structs.replace(books, **{name: getattr(books, name) + 1})
        assert "in the middle: " in _found(books=[("in the middle", off), ("at the end", books)])

    def test_an_end_with_work_left(self) -> None:
        books = Census(1, 0, 0, 1, 0, 2, 1, 0, 0, 0, 1, 0, 2)
        assert "1 of 2 pages are done" in _found(books=[("at the end", books)])

    def test_a_fetch_too_many(self) -> None:
        records = [*_clean().records, _record(3, "/p/0", 3.0)]
        assert "127.77.0.1/p/0 (2 times, 1 counted)" in _found(records=records)

    def test_a_fetch_for_each_lost_lease(self) -> None:
        records = [*_clean().records, _record(3, "/p/0", 3.0)]
        leases = [*_clean().leases, _granted(3, ONE, attempt=2, losses=1)]
        evidence = _but(records=records, leases=leases, refusals={7: 1})
        assert checks.findings(evidence) == []
        assert checks.refetched(evidence) == 1

    def test_requests_that_overlap(self) -> None:
        records = [_record(1, "/p/0", 1.0, ended=2.5), _record(2, "/p/1", 2.0)]
        assert "overlap" in _found(records=records)

    def test_a_request_that_never_ended_overlaps_the_next(self) -> None:
        records = [_record(1, "/p/0", 1.0), _record(2, "/p/1", 2.0)]
        records[0].ended = None
        assert "overlap" in _found(records=records)

    def test_requests_too_close(self) -> None:
        records = [_record(1, "/p/0", 1.0), _record(2, "/p/1", 1.4)]
        assert "closer than the delay" in _found(records=records)
        elsewhere = [records[0], msgspec.structs.replace(records[1], host="127.77.0.2")]
        assert checks.hosts(_but(records=elsewhere)) == []

    def test_only_a_worker_that_thaws_is_late(self) -> None:
        close = [_record(1, "/p/0", 1.0), _record(2, "/p/1", 1.4), _record(3, "/p/0", 2.0)]
        leases = [_granted(1, ONE), _granted(2, OTHER), _granted(3, ONE, attempt=2, losses=1)]
        thawed = _but(records=close, leases=leases, freezes=[Freeze(7, 0.0, 0.9, 1)], refusals={7: 1})
        assert checks.hosts(thawed) == []
        assert checks.late(thawed) == 1
        for freeze in (Freeze(8, 0.0, 0.9, 1), Freeze(7, 0.0, 1.1, 1), Freeze(7, -5.0, -1.0, 1)):
            assert checks.hosts(msgspec.structs.replace(thawed, freezes=[freeze]))

    def test_a_stale_settle_that_was_taken(self) -> None:
        leases = [*_clean().leases, _granted(3, ONE, attempt=2, losses=1, worker="host-8-abc")]
        assert "process 7 lost 1 leases, but only 0" in _found(leases=leases, refusals={7: 0, 8: 0})
        assert checks.refusals(_but(leases=leases, refusals={7: 1, 8: 0})) == []
        assert checks.refusals(_but(leases=leases, refusals={8: 0})) == [], "it was killed"
        assert checks.refusals(_but(leases=leases, refusals={7: 0, 8: 0}, cuts=[0.0])) == [], "it may not have known"

    def test_a_settle_that_was_refused_in_error(self) -> None:
        assert "process 7 lost 0 leases, but 1" in _found(refusals={7: 1})
        assert checks.refusals(_but(refusals={7: 1}, cuts=[100.0])) == [], "it may have been asked twice"


class TestReport:
    def test_the_table_goes_between_the_marks_of_a_page(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
        result = Result(plan=draw(3), findings=["one\ntwo"], seconds=20.4, fetches=9, refetched=4, lost=6, refused=5)
        report.write(page, report.table([result], "Redis 7"))
        text = page.read_text()
        assert text.startswith(f"before\n{report.BEGIN}\n")
        assert text.endswith(f"{report.END}\nafter\n")
        assert "old" not in text
        (row,) = [line for line in text.splitlines() if line.startswith("| 3 |")]
        assert row.endswith("| 4 | 6 | 5 | 0 | 20 | one two |")


_KINDS = (
    Kind.JOIN,
    Kind.KILL,
    Kind.FLUSH,
    Kind.KILL_CRAWL,
    Kind.CUT,
    Kind.RESTART,
    Kind.PAUSE,
    Kind.FREEZE,
    Kind.LEAVE,
)
_SITE = Site(seed=5, hosts=6, pages=420, links=12, page_bytes=1500, latency=0.01)
_PLAN = Plan(
    seed=5,
    site=_SITE,
    delay=0.03,
    robots=True,
    lease_seconds=2.0,
    workers=2,
    events=tuple(
        Event(kind=kind, at=0.08 * (number + 1), pick=0.4, seconds={Kind.FREEZE: 2.5}.get(kind, 1.0))
        for number, kind in enumerate(_KINDS)
    ),
)


async def test_a_run_in_which_everything_happens_is_clean() -> None:
    result = await run(_PLAN)
    assert result.findings == []
    assert result.lost > 0, "leases of what was killed or frozen are lost"


async def test_a_frozen_workers_leases_are_lost_and_what_it_made_of_them_is_refused() -> None:
    freeze = Event(kind=Kind.FREEZE, at=0.1, pick=0.0, seconds=2.5)
    result = await run(msgspec.structs.replace(_PLAN, events=(freeze,)))
    assert result.findings == []
    assert result.lost > 0
    assert result.refused > 0


def _planted(bug: str) -> tuple[str, ...]:
    """The command ``uttu``, with a bug."""
    return (sys.executable, "-P", "-c", f"{bug}\nfrom uttu.cli import main\nmain()")


_END_BEFORE_CHILDREN = """
import asyncio, msgspec
from uttu.frontier.redis.frontier import RedisFrontier

honest = RedisFrontier.settle

async def settle(self, outcomes):
    children = [child for outcome in outcomes for child in getattr(outcome, "children", ())]
    lost = await honest(self, [
        msgspec.structs.replace(outcome, children=()) if hasattr(outcome, "children") else outcome
        for outcome in outcomes
    ])
    if children:
        await asyncio.sleep(60)  # the window in which a kill is to come
        await self.put(children)
    return lost

RedisFrontier.settle = settle
"""


async def test_a_page_that_ends_before_its_children_are_kept_is_caught() -> None:
    """The kill is timed on the bug's window: the first page is done, its children are not there."""
    plan = msgspec.structs.replace(_PLAN, robots=False, workers=0, events=(Event(kind=Kind.KILL_CRAWL, at=0.0),))
    result = await run(plan, _planted(_END_BEFORE_CHILDREN))
    assert any("419 pages have no row" in found for found in result.findings), result.findings


_NO_WAITING = """
import msgspec
from uttu.frontier.redis.frontier import RedisFrontier

honest = RedisFrontier.lease

async def lease(self, limit, worker):
    return [msgspec.structs.replace(each, wait=0.0) for each in await honest(self, limit, worker)]

RedisFrontier.lease = lease
"""


async def test_a_worker_that_does_not_wait_for_its_turn_is_caught() -> None:
    site = msgspec.structs.replace(_SITE, pages=60)
    plan = msgspec.structs.replace(_PLAN, site=site, delay=0.1, workers=1, events=())
    result = await run(plan, _planted(_NO_WAITING))
    assert any("closer than the delay" in found for found in result.findings), result.findings


async def test_a_crawl_that_hangs_is_a_finding() -> None:
    plan = msgspec.structs.replace(_PLAN, workers=0, events=())
    result = await run(plan, _planted("import time\ntime.sleep(600)"), limit=0.5)
    assert any(found.startswith("not finished after 0.5 s") for found in result.findings), result.findings


def _commands(*commands: list[str | bytes]) -> bytes:
    """As a server appends them to its file."""
    written = b""
    for words in commands:
        encoded = [word.encode() if isinstance(word, str) else word for word in words]
        written += b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)
    return written


def _granted(
    id: int, page: str, *, attempt: int = 1, losses: int = 0, worker: str = "host-7-abc", at: float = 0.0
) -> Granted:
    return Granted(id=id, page=page, worker=worker, attempt=attempt, losses=losses, at=at)


def _record(id: int, path: str, time: float, ended: float | None = None) -> Record:
    return Record(id, time, "127.77.0.1", "GET", path, 1, 200, time + 0.01 if ended is None else ended)


def _clean() -> Evidence:
    """Two pages of one host, one after the other, by process 7."""
    return Evidence(
        delay=0.5,
        pages=frozenset({ONE, OTHER}),
        rows=[OTHER, ONE],
        records=[_record(0, "/robots.txt", 0.0), _record(1, "/p/0", 1.0), _record(2, "/p/1", 2.0)],
        leases=[_granted(1, ONE), _granted(2, OTHER)],
        books=[("at the end", Census(0, 0, 0, 2, 0, 2, 0, 0, 0, 0, 2, 0, 2))],
        refusals={7: 0},
    )


def _but(**changes: object) -> Evidence:
    return msgspec.structs.replace(_clean(), **changes)


def _found(**changes: object) -> str:
    """What is wrong with a run that is clean but for the changes."""
    return "\n".join(checks.findings(_but(**changes)))
