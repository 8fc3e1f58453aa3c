"""The contract of the store beside the frontier: items, cursors, shared values, and reopening."""

from __future__ import annotations

from uttu.frontier.base import Cursor, Rules
from uttu.model import Counts, Dead, Done, Pace, Retry
from uttu.model.crawl import CrawlState, Reason
from uttu.model.facts import CrawlFacts
from uttu.testing.contracts.store import EASY, HOST, TICK, StoreUnderTest, lanes, list_lanes, numbers, page, pages


class OutboxContract:
    """Items, in the order they were committed."""

    async def test_items_come_in_the_order_of_their_commit(self, store: StoreUnderTest) -> None:
        first, second, outbox = await store.frontier(EASY), await store.frontier(EASY), await store.outbox()
        await first.put(pages(6))
        a, b, c, d, e, f = await first.lease(6, "w")
        await second.settle([Done(lease=d, items=(b'"d0"', b'"d1"'))])
        await first.settle([Done(lease=b, items=(b'"b"',)), Done(lease=f), Done(lease=a, items=(b'"a"',))])
        await second.settle([Retry(lease=e), Dead(lease=c, kind="handler", reason="", items=(b'"c"',))])
        items = await outbox.items(0, 10)
        assert [item.json for item in items] == [b'"d0"', b'"d1"', b'"b"', b'"a"', b'"c"']
        positions = [item.position for item in items]
        assert positions[0] > 0
        assert positions == sorted(set(positions))

    async def test_an_item_is_known_by_its_page_and_its_number(self, store: StoreUnderTest) -> None:
        frontier, outbox = await store.frontier(EASY), await store.outbox()
        await frontier.put(pages(40))
        leases = await frontier.lease(40, "w")
        await frontier.settle([Done(lease=lease, items=(b"1", b"1")) for lease in leases])
        ids = [item.id for item in await outbox.items(0, 100)]
        assert ids == [f"{lease.fingerprint % 2**64:016x}-{number}" for lease in leases for number in (0, 1)]
        assert len(set(ids)) == 80

    async def test_items_survive_as_they_are(self, store: StoreUnderTest) -> None:
        frontier, outbox = await store.frontier(EASY), await store.outbox()
        await frontier.put(pages(1))
        odd = ('{"q":"\\"\'\\\\","u":"é\u2028😀","z":"\\u0000"}', "null", "[1, 2.50, -0.0]", '""', f'"{"x" * 300_000}"')
        items = tuple(item.encode() for item in odd)
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle([Done(lease=lease, items=items)])
        assert tuple(item.json for item in await outbox.items(0, 10)) == items

    async def test_items_are_read_from_a_position_and_stay(self, store: StoreUnderTest) -> None:
        frontier, outbox = await store.frontier(EASY), await store.outbox()
        await frontier.put(pages(5))
        await frontier.settle([Done(lease=each, items=(b"1", b"2")) for each in await frontier.lease(5, "w")])
        everything = await outbox.items(0, 100)
        assert len(everything) == 10
        assert await outbox.items(0, 4) == everything[:4]
        assert await outbox.items(everything[3].position, 4) == everything[4:8]
        assert await outbox.items(everything[9].position, 4) == []
        assert await outbox.items(0, 100) == everything

    async def test_the_latest_items_come_first(self, store: StoreUnderTest) -> None:
        frontier, outbox = await store.frontier(EASY), await store.outbox()
        assert await outbox.latest(9) == []
        await frontier.put(pages(5))
        await frontier.settle([Done(lease=each, items=(b"1", b"2")) for each in await frontier.lease(5, "w")])
        latest = (await outbox.items(0, 100))[::-1]
        assert await outbox.latest(100) == latest
        assert await outbox.latest(4) == latest[:4]
        assert await outbox.latest(4, latest[3].position) == latest[4:8]
        assert await outbox.latest(4, before=latest[7].position) == latest[8:]
        assert await outbox.latest(4, latest[9].position) == []
        assert await outbox.latest(4, latest[0].position + 1000) == latest[:4]

    async def test_each_sink_has_its_cursor(self, store: StoreUnderTest) -> None:
        outbox, other, ledger = await store.outbox(), await store.outbox(), await store.ledger()
        for sink in ("out.jsonl", "out.csv"):
            assert await ledger.claim(f"drain {sink}", "me", 60)
        assert await outbox.cursor("out.jsonl") == Cursor(0, b"")
        assert await outbox.advance("out.jsonl", Cursor(7, bytes(range(256))), "me")
        assert await outbox.advance("out.csv", Cursor(3, b"{}"), "me")
        assert await outbox.advance("out.jsonl", Cursor(9, b"offset"), "me")
        assert await other.cursor("out.jsonl") == Cursor(9, b"offset")
        assert await other.cursor("out.csv") == Cursor(3, b"{}")
        assert await other.advance("out.jsonl", Cursor(), "me")
        assert await outbox.cursor("out.jsonl") == Cursor()

    async def test_only_the_one_that_drains_a_sink_moves_its_cursor(self, store: StoreUnderTest) -> None:
        outbox, ledger = await store.outbox(), await store.ledger()
        assert not await outbox.advance("out.jsonl", Cursor(1, b"1"), "me")
        assert await ledger.claim("drain out.csv", "me", 60)
        assert await ledger.claim("drain out.jsonl", "me", 10)
        assert await outbox.advance("out.jsonl", Cursor(2, b"2"), "me")
        assert not await outbox.advance("out.jsonl", Cursor(3, b"3"), "you")
        store.clock.advance(10 - TICK)
        assert await outbox.advance("out.jsonl", Cursor(4, b"4"), "me")
        store.clock.advance(TICK)
        assert not await outbox.advance("out.jsonl", Cursor(5, b"5"), "me")
        assert await ledger.claim("drain out.jsonl", "you", 10)
        assert not await outbox.advance("out.jsonl", Cursor(6, b"6"), "me")
        assert await outbox.cursor("out.jsonl") == Cursor(4, b"4")
        assert await outbox.advance("out.jsonl", Cursor(7, b"7"), "you")
        await ledger.release("drain out.jsonl", "you")
        assert not await outbox.advance("out.jsonl", Cursor(8, b"8"), "you")
        assert await outbox.cursor("out.jsonl") == Cursor(7, b"7")


class MemoContract:
    """Small values that all workers share until they expire."""

    async def test_facts_are_shared_until_their_time(self, store: StoreUnderTest) -> None:
        memo, other = await store.memo(), await store.memo()
        assert await memo.recall("robots:a.example") is None
        await memo.remember("robots:a.example", bytes(range(256)), 10)
        await memo.remember("robots:b.example", b"", 20)
        store.clock.advance(9.5)
        assert await other.recall("robots:a.example") == bytes(range(256))
        store.clock.advance(0.5)
        assert await other.recall("robots:a.example") is None
        assert await other.recall("robots:b.example") == b""

    async def test_a_new_value_replaces_the_old(self, store: StoreUnderTest) -> None:
        memo = await store.memo()
        await memo.remember("key", b"old", 100)
        await memo.remember("key", b"new", 5)
        assert await memo.recall("key") == b"new"
        store.clock.advance(5)
        assert await memo.recall("key") is None
        await memo.remember("key", b"newest", 5)
        assert await memo.recall("key") == b"newest"


class ReopenContract:
    """A store that is closed and opened again has all its data."""

    async def test_everything_is_found_again(self, store: StoreUnderTest) -> None:
        rules = Rules(order="priority", pace=Pace(0.0, 0), ahead=0.0)
        frontier, outbox, memo = await store.frontier(rules), await store.outbox(), await store.memo()
        ledger = await store.ledger()
        await frontier.put([page(number, priority=number) for number in range(6)])
        done, late, dead, out = await frontier.lease(4, "w1")
        await frontier.settle(
            [
                Done(lease=done, items=(b"1",), children=(page(10, "b.example"),), size=7),
                Retry(lease=late, after=30),
                Dead(lease=dead, kind="http", reason="404"),
            ]
        )
        await frontier.hold("b.example", 20, "Retry-After")
        assert await ledger.claim("drain sink", "me", 60)
        assert await outbox.advance("sink", Cursor(1, b"state"), "me")
        await memo.remember("key", b"value", 60)
        before, items = await frontier.counts(), await outbox.items(0, 9)
        await frontier.close()

        frontier, outbox, memo = await store.frontier(rules), await store.outbox(), await store.memo()
        assert (
            await frontier.counts()
            == before
            == Counts(pending=3, leased=1, delayed=1, done=1, dead=1, items=1, bytes=7)
        )
        assert await outbox.items(0, 9) == items
        assert await outbox.cursor("sink") == Cursor(1, b"state")
        assert await memo.recall("key") == b"value"
        assert await frontier.put([page(number) for number in range(6)]) == 0
        assert await frontier.settle([Done(lease=out)]) == set()
        assert numbers(await frontier.lease(9, "w2")) == [1, 0]
        store.clock.advance(20)
        assert lanes(await frontier.lease(9, "w2")) == ["b.example"]
        store.clock.advance(10)
        assert numbers(await frontier.lease(9, "w2")) == [4]

    async def test_paces_and_turns_are_found_again(self, store: StoreUnderTest) -> None:
        rules = Rules(pace=Pace(0.0, 1), ahead=0.0)
        frontier = await store.frontier(rules)
        await frontier.put(pages(5))
        (lease,) = await frontier.lease(9, "w1")
        await frontier.settle([Done(lease=lease, touched=store.clock.monotonic(), pace=Pace(5.0, 2))])
        await frontier.close()
        frontier = await store.frontier(rules)
        assert await frontier.lease(9, "w2") == []
        store.clock.advance(5)
        assert lanes(await frontier.lease(9, "w2")) == [HOST]
        store.clock.advance(5)
        assert lanes(await frontier.lease(9, "w2")) == [HOST]
        store.clock.advance(5)
        assert await frontier.lease(9, "w2") == []

    async def test_facts_reports_and_pins_are_found_again(self, store: StoreUnderTest) -> None:
        frontier, ledger, inspector = await store.frontier(EASY), await store.ledger(), await store.inspector()
        await ledger.note(state=CrawlState.PAUSED, reason=Reason("lunch"))
        await ledger.report("w1", b"{}")
        await inspector.pin(HOST, 5.0)
        await frontier.close()
        frontier, ledger, inspector = await store.frontier(EASY), await store.ledger(), await store.inspector()
        await frontier.put(pages(2))
        assert await ledger.facts() == CrawlFacts(state=CrawlState.PAUSED, reason=Reason("lunch"))
        assert (await ledger.reports()).keys() == {"w1"}
        assert [(lane.pace, lane.pinned) for lane in await list_lanes(inspector)] == [(Pace(5.0, 1), True)]
        assert numbers(await frontier.lease(9, "w1")) == [0]

    async def test_closing_twice_does_no_harm(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        await frontier.close()
        await frontier.close()
