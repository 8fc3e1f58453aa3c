"""The contract of the inspector's lists: pages of lanes and of dead letters, and groups of dead letters."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from uttu.errors import StoreError
from uttu.frontier.base import Frontier, Inspector, Rules
from uttu.model import Counts, Dead, Done, Pace, Retry
from uttu.model.inspection import (
    NO_MESSAGE,
    OTHER_MESSAGES,
    DeadGroup,
    DeadPage,
    DeadQuery,
    LaneFilter,
    LanePage,
    LaneQuery,
    group_reason,
)
from uttu.model.lease import DeadLetter, LaneState
from uttu.testing.contracts.store import EASY, TICK, StoreUnderTest, count_dead_kinds, list_dead, numbers, page, pages

MOST_SEARCHED, MOST_DEAD_GROUPS = "uttu.model.inspection.MOST_SEARCHED", "uttu.model.inspection.MOST_DEAD_GROUPS"


class LanePageContract:
    """Lanes page by page, filtered and searched."""

    async def test_pages_have_every_lane_once(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        sizes = {f"h{number}.example": number % 4 + 1 for number in range(23)}
        await frontier.put([page(number, host) for host, size in sizes.items() for number in range(size)])
        expected = sorted(sizes, key=lambda host: (-sizes[host], host))
        whole = await inspector.lanes(LaneQuery(limit=1000))
        assert ([lane.name for lane in whole.lanes], whole.next) == (expected, "")
        for limit in (1, 5, 23, 24):
            found = await self.read_pages(inspector, limit)
            assert [lane for each in found for lane in each.lanes] == whole.lanes
            assert {len(each.lanes) for each in found[:-1]} <= {limit}
            assert {each.total for each in found} <= {23, None}
            assert len(found) == -(-23 // limit), "the last page says that it is the last"

    async def read_pages(self, inspector: Inspector, limit: int) -> list[LanePage]:
        found = [await inspector.lanes(LaneQuery(limit=limit))]
        while found[-1].next:
            found.append(await inspector.lanes(LaneQuery(limit=limit, after=found[-1].next)))
        return found

    async def test_lanes_of_an_empty_crawl(self, store: StoreUnderTest) -> None:
        inspector = await store.inspector()
        for only in LaneFilter:
            found = await inspector.lanes(LaneQuery(only=only))
            assert (found.lanes, found.next, found.total or 0) == ([], "", 0)

    async def test_lanes_are_filtered(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(Rules(pace=Pace(8.0, 1), ahead=0.0)), await store.inspector()
        clock = store.clock
        await frontier.put([*pages(1, "idle.example"), *pages(3, "active.example"), *pages(5, "waiting.example")])
        leases = {lease.lane: lease for lease in await frontier.lease(9, "w")}
        now = clock.monotonic()
        await frontier.settle([Done(lease=leases[f"{each}.example"], touched=now) for each in ("idle", "waiting")])
        await frontier.put([*pages(2, "ready.example"), *pages(4, "held.example")])
        await frontier.hold("held.example", 20, "Retry-After")
        await frontier.hold("unknown.example", 30, "robots.txt cannot be fetched")
        await inspector.pin("pinned.example", 1.0)

        async def names(only: LaneFilter) -> list[str]:
            lanes = await self.list_by(inspector, only)
            return [lane.name.removesuffix(".example") for lane in lanes]

        assert await names(LaneFilter.ALL) == ["held", "waiting", "active", "ready"]
        assert await names(LaneFilter.HELD) == ["held", "unknown"]
        assert await names(LaneFilter.WAITING) == ["held", "waiting"]
        assert await names(LaneFilter.READY) == ["active", "ready"]
        assert await names(LaneFilter.ACTIVE) == ["active"]
        assert await names(LaneFilter.PINNED) == ["pinned"]
        assert await names(LaneFilter.IDLE) == ["idle", "pinned", "unknown"]
        held = await self.list_by(inspector, LaneFilter.HELD)
        assert [lane.reason for lane in held] == ["Retry-After", "robots.txt cannot be fetched"]
        clock.advance(20)
        assert await names(LaneFilter.HELD) == ["unknown"]
        assert await names(LaneFilter.WAITING) == []
        assert await names(LaneFilter.READY) == ["held", "waiting", "active", "ready"]

    async def list_by(self, inspector: Inspector, only: LaneFilter) -> list[LaneState]:
        """Lanes by filter, one by one."""
        found, after = [], ""
        while True:
            got = await inspector.lanes(LaneQuery(limit=1, only=only, after=after))
            found += got.lanes
            after = got.next
            if not after:
                assert (await inspector.lanes(LaneQuery(only=only))).lanes == found
                return found

    async def test_lanes_are_searched(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        hosts = ("shop.example", "a.shop.example", "b-shop.example", "news.example", "a_b.example", "axb.example")
        await frontier.put([page(number, host) for size, host in enumerate(hosts, 1) for number in range(size)])

        async def names(match: str, limit: int = 9) -> list[str]:
            return [lane.name for lane in (await inspector.lanes(LaneQuery(match=match, limit=limit))).lanes]

        assert await names("shop") == ["b-shop.example", "a.shop.example", "shop.example"]
        assert await names("SHOP", 1) == ["b-shop.example"]
        assert await names("news.example") == ["news.example"]
        assert await names("nothing") == []
        # Characters with a meaning in patterns stand for themselves.
        for special in ("_", "a_b", "%", "*", "?", "[", "\\", "s?op", "s%p"):
            assert await names(special) == [lane for lane in await names("") if special in lane]
        first = await inspector.lanes(LaneQuery(match="shop", limit=2))
        second = await inspector.lanes(LaneQuery(match="shop", limit=2, after=first.next))
        assert [lane.name for lane in second.lanes] == ["shop.example"]
        assert (second.next, {first.total, second.total} <= {3, None}) == ("", True)

    async def test_one_lane_by_its_name(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await frontier.put([page(0, host) for host in ("shop.example", "a.shop.example")])
        found = await inspector.lanes(LaneQuery(name="shop.example"))
        assert ([lane.name for lane in found.lanes], found.next) == (["shop.example"], "")
        assert not (await inspector.lanes(LaneQuery(name="shop.example", only=LaneFilter.IDLE))).lanes
        assert not (await inspector.lanes(LaneQuery(name="hop.example"))).lanes

    async def test_a_cursor_of_nobody_is_refused(self, store: StoreUnderTest) -> None:
        inspector = await store.inspector()
        for after in ("nonsense", "1", "é"):
            with pytest.raises(StoreError, match="page"):
                await inspector.lanes(LaneQuery(after=after))
            with pytest.raises(StoreError, match="page"):
                await inspector.dead(DeadQuery(after=after))


async def bury(
    store: StoreUnderTest, frontier: Frontier, reasons: list[tuple[str, str]], first: int = 0, tick: float = TICK
) -> None:
    """One page dies for each kind and reason, in this order."""
    await frontier.put([page(number) for number in range(first, first + len(reasons))])
    leases = await frontier.lease(len(reasons), "w")
    assert numbers(leases) == list(range(first, first + len(reasons)))
    for lease, (kind, reason) in zip(leases, reasons, strict=True):
        store.clock.advance(tick)
        await frontier.settle([Dead(lease=lease, kind=kind, reason=reason, detail="how", status=404)])


class DeadPageContract:
    """Dead letters page by page, by group and searched."""

    REASONS = (
        ("http", "answered with status 404"),
        ("dns", "Cannot resolve a.example"),
        ("http", "answered with status 500"),
        ("http", "answered with status 404"),
        ("timeout", "No answer within 30 s"),
        ("timeout", "No answer within 5.5 s"),
        ("dns", "answered with status 404"),
    )

    @pytest.mark.parametrize("tick", [TICK, 0.0])
    async def test_pages_have_every_letter_once(self, store: StoreUnderTest, tick: float) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await bury(store, frontier, [*self.REASONS] * 4, tick=tick)
        whole = [letter async for letter in self.letters(inspector, DeadQuery(limit=1000))]
        assert len(whole) == 28
        assert [letter.at for letter in whole] == sorted((letter.at for letter in whole), reverse=True)
        if tick:
            assert [letter.request for letter in whole] == [page(number) for number in reversed(range(28))]
        for limit in (1, 3, 28, 29):
            assert [letter async for letter in self.letters(inspector, DeadQuery(limit=limit))] == whole
        assert (await inspector.dead(DeadQuery(limit=28))).next == "", "the last page says that it is the last"

    async def letters(self, inspector: Inspector, query: DeadQuery) -> AsyncIterator[DeadLetter]:
        found = DeadPage([], query.after)
        while True:
            found = await inspector.dead(
                DeadQuery(
                    limit=query.limit, after=found.next, kind=query.kind, message=query.message, match=query.match
                )
            )
            assert len(found.letters) <= query.limit
            for letter in found.letters:
                yield letter
            if not found.next:
                return

    @pytest.mark.parametrize("limit", [1, 100])
    async def test_letters_by_kind_and_message(self, store: StoreUnderTest, limit: int) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await bury(store, frontier, [*self.REASONS, *self.REASONS])

        async def found(kind: str = "", message: str = "") -> list[int]:
            query = DeadQuery(limit=limit, kind=kind, message=message)
            return [number_of(letter) async for letter in self.letters(inspector, query)]

        assert await found("http") == [10, 9, 7, 3, 2, 0]
        assert await found("dns") == [13, 8, 6, 1]
        assert await found("nothing") == []
        assert await found("http", "answered with status 404") == [10, 7, 3, 0]
        assert await found("dns", "answered with status 404") == [13, 6]
        assert await found("", "answered with status 404") == [13, 10, 7, 6, 3, 0]
        assert await found("timeout", "No answer within N s") == [12, 11, 5, 4]
        assert await found("http", "No answer within N s") == []
        assert await found("", "nothing") == []

    async def test_dead_letters_are_searched(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await bury(store, frontier, [*self.REASONS, ("http", '100% "é" of C:\\x_y'), ("http", "É")])

        async def found(match: str, kind: str = "", message: str = "", limit: int = 100) -> list[int]:
            query = DeadQuery(limit=limit, kind=kind, message=message, match=match)
            return [number_of(letter) async for letter in self.letters(inspector, query)]

        for limit in (1, 100):
            assert await found("status", limit=limit) == [6, 3, 2, 0]
            assert await found("STATUS 404", limit=limit) == [6, 3, 0]
            assert await found("resolve A.EXAMPLE", limit=limit) == [1]
            assert await found("https://a.example/4", limit=limit) == [4]
            assert await found("Status", "http", limit=limit) == [3, 2, 0]
            assert await found("5.5", "timeout", "No answer within N s", limit=limit) == [5]
            assert await found("404", message="answered with status 404", limit=limit) == [6, 3, 0]
            assert await found("a.example", limit=limit) == list(reversed(range(9)))
        # Neither other fields of a request nor its encoding are searched.
        for elsewhere in ("how", "{", '"u"', "null"):
            assert await found(elsewhere) == []
        # Characters with a meaning in patterns stand for themselves.
        for special in ("%", '"', "\\", "x_y", '% "é"', "C:\\x"):
            assert await found(special) == [7]
        assert await found("a_swered") == []

    async def test_a_search_of_dead_letters_is_bounded(
        self, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(MOST_SEARCHED, 10)
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await bury(store, frontier, [("http", "needle" if number in (3, 28) else "hay") for number in range(30)])
        first = await inspector.dead(DeadQuery(match="needle"))
        assert [number_of(letter) for letter in first.letters] == [28]
        second = await inspector.dead(DeadQuery(match="needle", after=first.next))
        assert (second.letters, bool(second.next)) == ([], True)
        found = [number_of(letter) async for letter in self.letters(inspector, DeadQuery(match="needle"))]
        assert found == [28, 3]
        assert [letter async for letter in self.letters(inspector, DeadQuery(match="nothing"))] == []
        assert len([letter async for letter in self.letters(inspector, DeadQuery(limit=25))]) == 30

    async def test_letters_that_come_meanwhile_do_not_shift_a_page(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await bury(store, frontier, [("http", "x")] * 6)
        first = await inspector.dead(DeadQuery(limit=3))
        await bury(store, frontier, [("http", "x")] * 2, first=6)
        second = await inspector.dead(DeadQuery(limit=3, after=first.next))
        assert [number_of(letter) for letter in (*first.letters, *second.letters)] == [5, 4, 3, 2, 1, 0]


def number_of(letter: DeadLetter) -> int:
    return int(letter.request.url.rpartition("/")[2])


async def check_groups(inspector: Inspector) -> list[DeadGroup]:
    """Compare the groups with all dead letters, and return them."""
    groups, letters = await inspector.dead_groups(), await list_dead(inspector, 10_000)
    counts = Counter((letter.kind, group_reason(letter.reason)) for letter in letters)
    assert {(group.kind, group.message): group.count for group in groups} == dict(counts)
    assert groups == sorted(groups, key=lambda group: (-group.count, group.kind, group.message))
    for group in groups:
        alike = [each for each in letters if (each.kind, group_reason(each.reason)) == (group.kind, group.message)]
        last = max(letter.at for letter in alike)
        assert group.last == pytest.approx(last, abs=1e-3)
        assert group.sample in [letter.request.url for letter in alike if letter.at == last]
    return groups


class DeadGroupContract:
    """Groups of dead letters are counted exactly, whatever happens to the letters."""

    async def test_groups_are_counted(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        assert await inspector.dead_groups() == []
        await bury(store, frontier, [*DeadPageContract.REASONS, ("http", "")])
        groups = await check_groups(inspector)
        assert [(group.kind, group.message, group.count) for group in groups] == [
            ("http", "answered with status 404", 2),
            ("timeout", "No answer within N s", 2),
            ("dns", "Cannot resolve a.example", 1),
            ("dns", "answered with status 404", 1),
            ("http", "answered with status 500", 1),
            ("http", NO_MESSAGE, 1),
        ]
        assert groups[1].sample == page(5).url
        assert await count_dead_kinds(inspector) == {"http": 4, "dns": 2, "timeout": 2}

    async def test_lost_requests_are_counted(self, store: StoreUnderTest) -> None:
        frontier = await store.frontier(Rules(pace=EASY.pace, ahead=0.0, lease_seconds=10, max_losses=2))
        inspector = await store.inspector()
        await frontier.put(pages(3))
        for _ in range(2):
            assert len(await frontier.lease(3, "w")) == 3
            store.clock.advance(10)
        assert await frontier.lease(3, "w") == []
        (group,) = await check_groups(inspector)
        assert (group.kind, group.count) == ("lost", 3)
        assert group.message == "its worker was lost N times while it had this page"
        assert await inspector.revive(message=group.message) == 3
        assert await inspector.dead_groups() == []
        assert len(await frontier.lease(9, "w")) == 3

    async def test_revival_by_message(self, store: StoreUnderTest) -> None:
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await bury(store, frontier, [*DeadPageContract.REASONS])
        assert await inspector.revive(message="nothing") == 0
        assert await inspector.revive(kind="http", message="No answer within N s") == 0
        assert await inspector.revive(message="answered with status 404", url=page(1).url) == 0
        assert await inspector.revive(kind="http", message="answered with status 404") == 2
        assert await frontier.counts() == Counts(pending=2, dead=5)
        await check_groups(inspector)
        assert await inspector.revive(message="No answer within N s", url=page(4).url) == 1
        await check_groups(inspector)
        assert await inspector.revive(message="answered with status 404") == 1
        assert await inspector.revive(kind="dns", url=page(1).url) == 1
        (group, last) = await check_groups(inspector)
        assert (group.message, last.message) == ("answered with status 500", "No answer within N s")
        assert await inspector.revive() == 2
        assert await inspector.dead_groups() == []
        again = await frontier.lease(9, "w")
        assert (sorted(numbers(again)), {lease.attempt for lease in again}) == (list(range(7)), {1})

    async def test_there_is_a_limit_to_groups(self, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(MOST_DEAD_GROUPS, 3)
        frontier, inspector = await store.frontier(EASY), await store.inspector()
        await bury(store, frontier, [("http", each) for each in ("a", "b", "c", "d", "a", "e")] + [("dns", "a")])

        async def groups() -> dict[tuple[str, str], int]:
            return {(group.kind, group.message): group.count for group in await inspector.dead_groups()}

        assert await groups() == {
            ("http", "a"): 2,
            ("http", OTHER_MESSAGES): 2,
            ("dns", OTHER_MESSAGES): 1,
            ("http", "b"): 1,
            ("http", "c"): 1,
        }
        others = await inspector.dead(DeadQuery(kind="http", message=OTHER_MESSAGES))
        assert [letter.reason for letter in others.letters] == ["e", "d"]
        others = await inspector.dead(DeadQuery(message=OTHER_MESSAGES))
        assert [number_of(letter) for letter in others.letters] == [6, 5, 3]
        assert await inspector.revive(message="d") == 0
        assert await inspector.revive(kind="http", message=OTHER_MESSAGES) == 2
        assert await inspector.revive(message="b") == 1
        assert await inspector.revive(message="c") == 1
        await frontier.settle([Done(lease=lease) for lease in await frontier.lease(9, "w")])
        await bury(store, frontier, [("http", "f"), ("http", "g")], first=7)
        assert await groups() == {
            ("http", "a"): 2,
            ("dns", OTHER_MESSAGES): 1,
            ("http", "f"): 1,
            ("http", OTHER_MESSAGES): 1,
        }

    @pytest.mark.parametrize("seed", range(3))
    async def test_groups_stay_exact(self, store: StoreUnderTest, seed: int) -> None:
        draw = random.Random(seed)
        frontier = await store.frontier(Rules(pace=EASY.pace, ahead=0.0, lease_seconds=10, max_losses=2))
        inspector = await store.inspector()
        await frontier.put([page(number, f"h{number % 3}.example") for number in range(60)])
        kinds, reasons = ("http", "dns", "handler"), ("KeyError: 'x'", "status 404", "port 80", "port 8080", "")
        for _ in range(25):
            leases = await frontier.lease(draw.randrange(12), "w")
            await frontier.settle(
                [
                    Dead(lease=lease, kind=draw.choice(kinds), reason=draw.choice(reasons))
                    if draw.random() < 0.8
                    else Retry(lease=lease, after=draw.choice([0.0, 5.0]))
                    for lease in leases
                    if draw.random() < 0.8
                ]
            )
            store.clock.advance(draw.choice([TICK, 5, 10]))
            groups = await check_groups(inspector)
            if groups and draw.random() < 0.4:
                group = draw.choice(groups)
                match draw.randrange(3):
                    case 0:
                        assert await inspector.revive(kind=group.kind, message=group.message) == group.count
                    case 1:
                        assert await inspector.revive(url=group.sample) == 1
                    case _:
                        assert await inspector.revive(kind=group.kind) >= group.count
                await check_groups(inspector)
        counts = await frontier.counts()
        assert counts.dead == sum((await count_dead_kinds(inspector)).values())
