"""The contract of the ledger: facts, reports, and exclusive roles."""

from __future__ import annotations

import msgspec
import pytest

from uttu.model import Pace
from uttu.model.crawl import NO_REASON, CrawlState, Reason, ReasonKind, Rules
from uttu.model.facts import CrawlFacts, FactChanges, FileRecord, SliceMark
from uttu.testing.contracts.store import EASY, TICK, StoreUnderTest

FACTS: FactChanges = {
    "state": CrawlState.STOPPED,
    "reason": Reason("redis://h", ReasonKind.MOVED),
    "spider": "shop",
    "file": "/é/shop.py",
    "arguments": {"q": "é"},
    "flags": {"delay": 0.5, "domains": ["a.example"]},
    "withheld": {"proxy": True},
    "outputs": ("a.jsonl", "-"),
    "began": 1700000000.0,
    "pace": Pace(2.0, 3),
    "rules": Rules(order="priority", pace=Pace(2.0, 3), max_pages=7),
    "start_hosts": frozenset({"a.example", "b.example:81"}),
    "seeded": True,
    "fed": True,
    "unattended": True,
    "written": {"/é/a.jsonl": FileRecord(inode=1, size=2, mtime_ns=3, closed=True)},
    "slices": {"some-id": SliceMark(3, 1700000000.125)},
}
"""A value other than the default for every fact."""


class LedgerContract:
    """Facts about the crawl, and reports of its workers."""

    async def test_facts_are_set_one_by_one_and_seen_by_all(self, store: StoreUnderTest) -> None:
        await store.frontier(EASY)
        ledger, other = await store.ledger(), await store.ledger()
        assert await ledger.facts() == CrawlFacts()
        await ledger.note(state=CrawlState.RUNNING, spider="quotes", reason=NO_REASON)
        await other.note(state=CrawlState.PAUSED, arguments={"q": "é \0 😀"})
        expected = CrawlFacts(state=CrawlState.PAUSED, spider="quotes", arguments={"q": "é \0 😀"})
        assert await ledger.facts() == await other.facts() == expected

    async def test_every_fact_is_read_as_it_was_noted(self, store: StoreUnderTest) -> None:
        await store.frontier(EASY)
        ledger, other = await store.ledger(), await store.ledger()
        await ledger.note(**FACTS)
        assert await other.facts() == CrawlFacts(**FACTS)
        await ledger.note(seeded=False, fed=False, unattended=False, reason=NO_REASON)
        cleared = {"seeded": False, "fed": False, "unattended": False, "reason": NO_REASON}
        assert await other.facts() == msgspec.structs.replace(CrawlFacts(**FACTS), **cleared)

    @pytest.mark.parametrize("kind", ReasonKind)
    @pytest.mark.parametrize("text", ["", "moved to é", "interrupted", "{", '{"text":"x"}'])
    async def test_a_reason_keeps_its_kind(self, store: StoreUnderTest, kind: ReasonKind, text: str) -> None:
        await store.frontier(EASY)
        ledger = await store.ledger()
        await ledger.note(reason=Reason(text, kind))
        assert (await ledger.facts()).reason == Reason(text, kind)

    async def test_records_and_marks_are_set_one_by_one(self, store: StoreUnderTest) -> None:
        await store.frontier(EASY)
        ledger, other = await store.ledger(), await store.ledger()
        await ledger.note(written={"/a b": FileRecord(inode=1)}, slices={"one": SliceMark(1)})
        await other.note(written={"/c": FileRecord(inode=2)}, slices={"two": SliceMark(1)})
        await ledger.note(slices={"one": SliceMark(2, 1700000000.125)})
        facts = await other.facts()
        assert facts.written == {"/a b": FileRecord(inode=1), "/c": FileRecord(inode=2)}
        assert facts.slices == {"one": SliceMark(2, 1700000000.125), "two": SliceMark(1)}

    async def test_the_last_report_of_each_worker_and_its_age(self, store: StoreUnderTest) -> None:
        await store.frontier(EASY)
        ledger, other = await store.ledger(), await store.ledger()
        assert await ledger.reports() == {}
        await ledger.report("w1", b'{"pages":1}')
        store.clock.advance(2)
        await other.report("host/w2", b'{"name":"\xc3\xa9"}')
        store.clock.advance(TICK)
        reports = await ledger.reports()
        assert {worker: report for worker, (_, report) in reports.items()} == {
            "w1": b'{"pages":1}',
            "host/w2": b'{"name":"\xc3\xa9"}',
        }
        ages = {worker: age for worker, (age, _) in reports.items()}
        assert ages == {"w1": pytest.approx(2 + TICK, abs=1e-6), "host/w2": pytest.approx(TICK, abs=1e-6)}
        await other.report("w1", b'{"pages":2}')
        age, report = (await ledger.reports())["w1"]
        assert age == pytest.approx(0, abs=1e-6)
        assert report == b'{"pages":2}'


class ClaimContract:
    """Roles that have one owner at a time."""

    async def test_a_role_is_one_owners(self, store: StoreUnderTest) -> None:
        await store.frontier(EASY)
        mine, yours = await store.ledger(), await store.ledger()
        assert await mine.claim("drain out.jsonl", "me", 10)
        assert not await yours.claim("drain out.jsonl", "you", 10)
        assert await yours.claim("drain out.csv", "you", 10)
        assert await mine.claimed() == {"drain out.jsonl": "me", "drain out.csv": "you"}

    async def test_a_claim_ends_by_the_clock(self, store: StoreUnderTest) -> None:
        await store.frontier(EASY)
        mine, yours = await store.ledger(), await store.ledger()
        assert await mine.claim("role", "me", 10)
        store.clock.advance(10 - TICK)
        assert not await yours.claim("role", "you", 10)
        assert await yours.claimed() == {"role": "me"}
        store.clock.advance(TICK)
        assert await yours.claimed() == {}
        assert await yours.claim("role", "you", 10)
        assert not await mine.claim("role", "me", 10)

    async def test_a_claim_again_lasts_from_now(self, store: StoreUnderTest) -> None:
        await store.frontier(EASY)
        mine, yours = await store.ledger(), await store.ledger()
        assert await mine.claim("role", "me", 10)
        store.clock.advance(8)
        assert await mine.claim("role", "me", 10)
        store.clock.advance(10 - TICK)
        assert not await yours.claim("role", "you", 10)
        assert await mine.claim("role", "me", TICK)
        store.clock.advance(TICK)
        assert await yours.claim("role", "you", 10)

    async def test_a_refused_claim_changes_nothing(self, store: StoreUnderTest) -> None:
        await store.frontier(EASY)
        mine, yours = await store.ledger(), await store.ledger()
        assert await mine.claim("role", "me", 10)
        assert not await yours.claim("role", "you", 100)
        store.clock.advance(10)
        assert await mine.claimed() == {}
        assert await mine.claim("role", "me", 10)

    async def test_a_role_is_given_up_by_its_owner_only(self, store: StoreUnderTest) -> None:
        await store.frontier(EASY)
        mine, yours = await store.ledger(), await store.ledger()
        assert await mine.claim("role", "me", 10)
        await yours.release("role", "you")
        await yours.release("another", "you")
        assert not await yours.claim("role", "you", 10)
        await mine.release("role", "me")
        assert await mine.claimed() == {}
        assert await yours.claim("role", "you", 10)
        await mine.release("role", "me")
        assert await mine.claimed() == {"role": "you"}
