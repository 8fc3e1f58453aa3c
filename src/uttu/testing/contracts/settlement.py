"""The frontier contract on admission, settling and counting: nothing twice, nothing lost."""

from __future__ import annotations

import pytest

from uttu.frontier.base import Rules
from uttu.model import Counts, Dead, Done, Outcome, Request, Retry
from uttu.model.request import SetCookie
from uttu.testing.contracts.store import EASY, HOST, TICK, StoreUnderTest, lanes, lease_all, numbers, page, pages


class AdmissionContract:
    """Each request is admitted once."""

    async def test_a_request_is_admitted_once(self, store: StoreUnderTest) -> None:
        first, second = await store.frontier(EASY), await store.frontier(EASY)
        assert await first.put(pages(3)) == 3
        assert await first.put(pages(3)) == 0
        assert await second.put(pages(5)) == 2
        assert await second.put([page(7), page(7), page(7)]) == 1
        assert await first.counts() == Counts(pending=6)
        assert await lease_all(second) == [0, 1, 2, 3, 4, 7]

    async def test_seen_outlives_the_request(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(4))
        done, dead, late, _out = await frontier.lease(4, "w")
        await frontier.settle([Done(lease=done), Dead(lease=dead, kind="http", reason=""), Retry(lease=late, after=9)])
        assert await frontier.put(pages(4)) == 0
        assert (await frontier.counts()).seen == 4

    async def test_method_body_and_salt_set_requests_apart(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        apart = [
            page(0),
            page(0, method="POST"),
            page(0, method="POST", body=b"a=1"),
            page(0, method="POST", body=b"a=2"),
            page(0, salt="1"),
            page(0, salt="2"),
        ]
        assert len({request.fingerprint for request in apart}) == len(apart)
        assert await frontier.put(apart) == len(apart)
        assert [lease.request for lease in await frontier.lease(9, "w")] == apart

    async def test_other_fields_do_not_and_the_first_stays(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        same = [page(0, depth=1), page(0, depth=2), page(0, handler="x", priority=3, meta={"a": 1}, headers={"b": "c"})]
        assert await frontier.put(same) == 1
        assert await frontier.put(same[1:]) == 0
        (lease,) = await frontier.lease(9, "w")
        assert lease.request.depth == 1

    async def test_no_more_of_a_host_than_wanted(self, store: StoreUnderTest) -> None:
        rules = Rules(pace=EASY.pace, max_per_lane=3)
        first, second = await store.frontier(rules), await store.frontier(rules)
        assert await first.put([*pages(2, "a.example"), *pages(9, "b.example")]) == 5
        assert await second.put([*pages(9, "a.example"), *pages(9, "b.example")]) == 1
        (lease, *_) = await first.lease(1, "w")
        children = (page(20, "a.example"), page(20, "c.example"))
        await first.settle([Done(lease=lease, children=children)])
        assert await first.counts() == Counts(pending=6, done=1)
        found = [lease.lane, *lanes(await second.lease(9, "w2"))]
        assert sorted(found) == ["a.example"] * 3 + ["b.example"] * 3 + ["c.example"]

    async def test_empty_batches_do_nothing(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        assert await frontier.put([]) == 0
        assert await frontier.settle([]) == set()
        assert await frontier.extend([]) == set()
        assert await frontier.lease(5, "w") == []
        await frontier.put(pages(2))
        assert await frontier.lease(0, "w") == []
        assert await frontier.put([]) == 0
        assert await frontier.settle([]) == set()
        assert await frontier.counts() == Counts(pending=2)

    async def test_a_large_batch(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        batch = [page(number, f"h{number % 500}.example") for number in range(5_000)]
        assert await frontier.put(batch) == 5_000
        assert await frontier.put(batch) == 0
        leases = await frontier.lease(5_000, "w")
        assert {lease.fingerprint for lease in leases} == {request.fingerprint for request in batch}
        half = leases[:2_500]
        outcomes = [Done(lease=lease, children=(page(1_000_000 + lease.id, lease.lane),)) for lease in half]
        assert await frontier.settle(outcomes) == set()
        assert await frontier.extend(leases) == {lease.id for lease in half}
        assert await frontier.counts() == Counts(pending=2_500, leased=2_500, done=2_500)

    @pytest.mark.parametrize(
        "url",
        [
            """https://a.example/?q="x"&y='z'&w=\\;--&v=$1&u=?1&t=:a""",
            "https://a.example/%E2%82%AC/é/日本/😀?k=%00%ff",
            "https://a.example/" + "long/" * 1_640 + "?" + "q" * 8,
            "https://user:secret@a.example:8443/private",
            "https://[2001:db8::1]:8080/",
            "https://bücher.example/",
            "http://127.0.0.1/",
        ],
        ids=["quotes", "unicode", "long", "userinfo", "ipv6", "idn", "address"],
    )
    async def test_odd_addresses_survive(self, store: StoreUnderTest, url: str) -> None:
        frontier, request = await store.frontier(EASY), Request.to(url)
        assert await frontier.put([request]) == 1
        (lease,) = await frontier.lease(1, "w")
        assert (lease.request, lease.lane, lease.fingerprint) == (request, request.lane, request.fingerprint)
        await frontier.settle([Retry(lease=lease, after=5)])
        assert await frontier.put([request]) == 0
        store.clock.advance(5)
        (lease,) = await frontier.lease(1, "w")
        assert lease.request == request

    async def test_every_field_survives(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(Rules(order="priority", pace=EASY.pace))
        request = Request(
            url="https://a.example/",
            handler="détail",
            method="POST",
            headers={"Accept": "*/*", "X-Quote": "\"'\\"},
            body=bytes(range(256)) * 40,
            meta={"nested": [{"a": None, "b": 1.5, "c": True}], "text": "\x00\n\u2028😀", "big": 2**53},
            cookies={"id": "1"},
            priority=-7,
            depth=3,
            via=("https://a.example/old", "https://b.example/older"),
            salt="s",
            proxy="http://proxy.example:3128",
            start=True,
            carried=(
                SetCookie("https://a.example/old", "id=1; Path=/", 1.5),
                SetCookie("https://a.example", "own=\xe9"),
            ),
        )
        plain = Request(url="https://a.example/plain")
        for field in Request.__struct_fields__:
            assert getattr(request, field) != getattr(plain, field), f"{field} is not tested"
        await frontier.put([plain])
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle([Done(lease=lease, children=(request,))])
        (lease,) = await frontier.lease(1, "w")
        assert lease.request == request


class SettleContract:
    """How outcomes end pages, and the counts after it."""

    async def test_children_are_admitted_once(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(3))
        leases = await frontier.lease(2, "w")
        await frontier.settle(
            [
                Done(lease=leases[0], children=(page(0), page(2), page(5), page(5), page(6))),
                Done(lease=leases[1], children=(page(6), page(1), page(7), page(7, "b.example"))),
            ]
        )
        assert await frontier.counts() == Counts(pending=5, done=2)
        assert sorted(await lease_all(frontier)) == [2, 5, 6, 7, 7]

    async def test_a_dead_page_is_kept_with_what_was_made_of_it(self, store: StoreUnderTest) -> None:
        frontier, outbox = await store.frontier(EASY), await store.outbox()
        await frontier.put(pages(2))
        leases = await frontier.lease(2, "w")
        dead = Dead(
            lease=leases[0],
            kind="handler",
            reason='it\'s "odd"',
            detail="line\n\x00\ttraceback",
            status=500,
            children=(page(1), page(9)),
            items=(b'{"failed":true}',),
        )
        assert await frontier.settle([dead]) == set()
        assert await frontier.counts() == Counts(pending=1, leased=1, dead=1, items=1)
        assert [item.json for item in await outbox.items(0, 9)] == [b'{"failed":true}']
        assert numbers(await frontier.lease(9, "w")) == [9]
        assert await frontier.put(pages(1)) == 0

    async def test_a_retry_is_delayed_until_its_time(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(2))
        leases = await frontier.lease(2, "w")
        await frontier.settle([Retry(lease=leases[0], after=20, reason="503"), Retry(lease=leases[1], after=10)])
        assert await frontier.counts() == Counts(delayed=2)
        store.clock.advance(10 - TICK)
        assert await frontier.lease(9, "w") == []
        store.clock.advance(TICK)
        assert numbers(await frontier.lease(9, "w")) == [1]
        store.clock.advance(10 - TICK)
        assert await frontier.lease(9, "w") == []
        store.clock.advance(TICK)
        assert numbers(await frontier.lease(9, "w")) == [0]

    @pytest.mark.parametrize("after", [0.0, 5.0])
    async def test_an_attempt_is_counted_or_not(self, store: StoreUnderTest, after: float) -> None:
        frontier = await store.frontier(EASY)
        await frontier.put(pages(1))
        attempts = []
        for counted in (True, False, False, True, True):
            (lease,) = await frontier.lease(1, "w")
            attempts.append(lease.attempt)
            await frontier.settle([Retry(lease=lease, after=after, counted=counted)])
            store.clock.advance(after)
        assert attempts == [1, 2, 2, 2, 3]

    async def test_no_more_items_than_wanted(self, store: StoreUnderTest) -> None:
        """One page has a hundred items, and two workers settle other pages at the same time."""
        rules = Rules(pace=EASY.pace, max_items=25)
        first, second = await store.frontier(rules), await store.frontier(rules)
        outbox = await store.outbox()
        await first.put(pages(6))
        mine, yours = await first.lease(3, "w1"), await second.lease(2, "w2")
        ten = tuple(b"%d" % number for number in range(10))
        assert await second.settle([Done(lease=yours[0], items=ten, size=7, children=(page(8),))]) == set()
        hundred = tuple(b"%d" % number for number in range(100))
        outcomes: list[Outcome] = [
            Done(lease=mine[0], items=hundred, children=(page(9),)),
            Done(lease=mine[1], items=(b"late",), children=(page(10),)),
            Done(lease=mine[2]),
        ]
        assert await first.settle(outcomes) == {mine[1].id}
        late = Dead(lease=yours[1], kind="http", reason="", items=(b"late",))
        assert await second.settle([late]) == {yours[1].id}
        assert await first.counts() == Counts(pending=5, done=3, items=25, bytes=7)
        stored = await outbox.items(0, 99)
        assert [item.json for item in stored] == [*ten, *hundred[:15]]
        assert await first.lease(9, "w1") == await second.lease(9, "w2") == []
        # A crawl that continues with a higher limit repeats refused pages with the first attempt.
        third = await store.frontier(Rules(pace=EASY.pace, max_items=26))
        again = {lease.id: lease for lease in await third.lease(9, "w3")}
        assert sorted(numbers(again.values())) == sorted([*numbers([mine[1], yours[1]]), 5, 8, 9])
        assert {lease.attempt for lease in again.values()} == {1}
        assert await third.settle([Done(lease=lease, items=(b"1",)) for lease in again.values()]) == set(again) - {
            min(again)
        }
        assert (await third.counts()).items == 26

    async def test_a_limit_of_items_that_is_met_exactly(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(Rules(pace=EASY.pace, max_items=4))
        await frontier.put(pages(4))
        leases = await frontier.lease(2, "w")
        assert await frontier.settle([Done(lease=lease, items=(b"1", b"2")) for lease in leases]) == set()
        assert await frontier.lease(2, "w") == []
        assert await frontier.counts() == Counts(pending=2, done=2, items=4)

    async def test_counts_are_exact_at_every_step(self, store: StoreUnderTest) -> None:
        frontier, other = await store.frontier(EASY), await store.frontier(EASY)
        assert await frontier.counts() == Counts()
        await frontier.put([*pages(3), *pages(3, "b.example")])
        assert await other.counts() == Counts(pending=6)
        leases = await frontier.lease(5, "w")
        assert await other.counts() == Counts(pending=1, leased=5)
        await frontier.settle([Done(lease=leases[0], children=(page(8), page(9)), items=(b"1", b"2"), size=700)])
        assert await other.counts() == Counts(pending=3, leased=4, done=1, items=2, bytes=700)
        await frontier.settle([Retry(lease=leases[1], after=5), Retry(lease=leases[2])])
        assert await other.counts() == Counts(pending=4, leased=2, delayed=1, done=1, items=2, bytes=700)
        await frontier.settle([Dead(lease=leases[3], kind="dns", reason="no such host")])
        assert await other.counts() == Counts(pending=4, leased=1, delayed=1, done=1, dead=1, items=2, bytes=700)
        assert await other.extend(leases) == {lease.id for lease in leases[:4]}
        await frontier.hold(HOST, 5, "")
        assert (await other.counts()).seen == 8
        store.clock.advance(5)
        assert len(await other.lease(9, "w2")) == 5
        assert await frontier.counts() == Counts(leased=6, done=1, dead=1, items=2, bytes=700)

    async def test_finished_is_when_nothing_is_left_to_do(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(EASY)
        assert (await frontier.counts()).finished
        await frontier.put(pages(1))
        assert not (await frontier.counts()).finished
        (lease,) = await frontier.lease(1, "w")
        assert not (await frontier.counts()).finished
        await frontier.settle([Retry(lease=lease, after=5)])
        assert not (await frontier.counts()).finished
        store.clock.advance(5)
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle([Done(lease=lease, children=(page(1),))])
        assert not (await frontier.counts()).finished
        (lease,) = await frontier.lease(1, "w")
        await frontier.settle([Dead(lease=lease, kind="http", reason="")])
        assert (await frontier.counts()).finished
