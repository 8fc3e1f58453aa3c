"""The contract of locks, elections, memberships and live configuration, on any coordinator.

A test file inherits the class and supplies the fixture ``cluster``, see :mod:`uttu.testing.contracts.coordinator`.
"""

from __future__ import annotations

import asyncio

import pytest

from uttu.cluster.base import ChangeKind
from uttu.cluster.config import LiveConfig
from uttu.cluster.locks import Election, Lock
from uttu.cluster.members import Membership
from uttu.errors import LockLost, LockTimeout, NodeExists, Refused, WrongVersion
from uttu.testing.contracts.coordinator import SOON, OpenCluster, wait_for_node


class RecipeContract:
    """Locks, elections, memberships and live configuration."""

    async def test_a_lock_excludes(self, cluster: OpenCluster) -> None:
        one, other = Lock(await cluster(), "door", "one"), Lock(await cluster(), "door", "other")
        token = await one.acquire()
        assert one.is_held
        assert one.token == token
        assert one.remaining > 0
        with pytest.raises(LockTimeout, match=r"'door' was not free within 0.2 s: it is held by one"):
            await other.acquire(wait=0.2)
        assert [holder.who for holder in await other.holders()] == ["one"]
        waiting = asyncio.create_task(other.acquire())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await one.release()
        assert not one.is_held
        assert await asyncio.wait_for(waiting, SOON) > token
        await other.release()
        assert await other.holders() == []

    async def test_locks_are_given_in_the_order_of_the_line(self, cluster: OpenCluster) -> None:
        trees = [await cluster(), await cluster()]
        given: list[tuple[int, int]] = []
        everybody = asyncio.Event()

        async def hold(number: int) -> None:
            async with Lock(trees[number % 2], "line", str(number)) as token:
                given.append((number, token))
                await everybody.wait()

        tasks = []
        for number in range(6):
            tasks.append(asyncio.create_task(hold(number)))
            await wait_for_node(trees[0], f"/locks/line/n{number:010d}")
        everybody.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 6 * SOON)
        assert [number for number, _ in given] == list(range(6))
        tokens = [token for _, token in given]
        assert tokens == sorted(set(tokens))

    async def test_a_lock_of_a_session_that_ended_is_free(self, cluster: OpenCluster) -> None:
        tree = await cluster()
        one, other = Lock(tree, "door"), Lock(await cluster(), "door")
        await one.acquire()
        waiting = asyncio.create_task(other.acquire())
        await tree.close()
        await asyncio.wait_for(waiting, SOON)
        assert not one.is_held
        with pytest.raises(LockLost):
            await one.release()
        assert other.is_held

    async def test_a_lock_ends_after_its_seconds(self, cluster: OpenCluster) -> None:
        one, other = Lock(await cluster(), "door", seconds=0.3), Lock(await cluster(), "door")
        await one.acquire()
        assert 0 < one.remaining <= 0.3
        await asyncio.wait_for(other.acquire(), SOON)
        assert (one.is_held, one.remaining) == (False, 0.0)
        with pytest.raises(LockLost):
            await one.release()
        assert other.is_held

    async def test_whoever_gives_up_leaves_the_line(self, cluster: OpenCluster) -> None:
        one, two, three = [Lock(await cluster(), "door", str(number)) for number in range(3)]
        await one.acquire()
        second = asyncio.create_task(two.acquire())
        await asyncio.sleep(0.2)
        third = asyncio.create_task(three.acquire())
        await asyncio.sleep(0.2)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert [holder.who for holder in await one.holders()] == ["0", "2"]
        await one.release()
        await asyncio.wait_for(third, SOON)

    async def test_a_semaphore(self, cluster: OpenCluster) -> None:
        locks = [Lock(await cluster(), "pool", permits=2) for _ in range(3)]
        await locks[0].acquire()
        await locks[1].acquire()
        waiting = asyncio.create_task(locks[2].acquire())
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await locks[1].release()
        await asyncio.wait_for(waiting, SOON)

    async def test_one_leads_and_another_takes_over(self, cluster: OpenCluster) -> None:
        trees = [await cluster(), await cluster()]
        first, second = Election(trees[0], "beat", "first"), Election(trees[1], "beat", "second", b"data")
        led = asyncio.Event()
        tokens: list[int] = []

        async def lead() -> None:
            async with second.lead() as leadership:
                tokens.append(leadership.token)
                led.set()
                await leadership.lost.wait()

        assert await second.leader() is None
        async with first.lead() as leadership:
            tokens.append(leadership.token)
            task = asyncio.create_task(lead())
            leader = await second.leader()
            assert leader is not None
            assert (leader.who, leader.token) == ("first", leadership.token)
            await asyncio.sleep(0.2)
            assert not led.is_set()
            assert leadership.is_held
        await asyncio.wait_for(led.wait(), SOON)
        assert tokens == sorted(set(tokens))
        leader = await first.leader()
        assert leader is not None
        assert (leader.who, leader.data) == ("second", b"data")
        await trees[1].close()
        await asyncio.wait_for(task, SOON)
        assert await first.leader() is None

    async def test_members_come_and_go(self, cluster: OpenCluster) -> None:
        trees = [await cluster() for _ in range(3)]
        groups = [Membership(tree, "workers") for tree in trees]
        async with groups[0].join("a", b"1"), groups[2].watch() as changes:
            seen: list[tuple[ChangeKind, str]] = []

            async def hear(count: int) -> None:
                async with asyncio.timeout(SOON):
                    while len(seen) < count:
                        change = await anext(changes)
                        seen.append((change.kind, change.name))

            await hear(1)
            async with groups[1].join("b", b"2"):
                await hear(2)
                assert [(member.name, member.data) for member in await groups[2].members()] == [
                    ("a", b"1"),
                    ("b", b"2"),
                ]
                with pytest.raises(NodeExists, match="has a member named 'a'"):
                    async with groups[1].join("a"):
                        pass
            await hear(3)
            assert seen == [
                (ChangeKind.PRESENT, "a"),
                (ChangeKind.CREATED, "b"),
                (ChangeKind.DELETED, "b"),
            ]
        assert await groups[1].members() == []

    async def test_settings(self, cluster: OpenCluster) -> None:
        one, other = LiveConfig(await cluster(), "ann"), LiveConfig(await cluster(), "bob")
        assert await one.get("crawls/shop/delay") is None
        await one.set("crawls/shop/delay", b"2", version=-1)
        setting = await other.get("crawls/shop/delay")
        assert setting is not None
        assert (setting.value, setting.version, setting.by) == (b"2", 0, "ann")
        await other.set("crawls/shop/delay", b"3", version=0)
        with pytest.raises(WrongVersion, match="has version 1, not 0"):
            await one.set("crawls/shop/delay", b"4", version=0)
        await one.change({"crawls/shop/rate": b"9", "crawls/blog/delay": b"1"}, {"crawls/shop/delay": 1})
        with pytest.raises(WrongVersion):
            await one.change({"crawls/shop/rate": b"10"}, {"crawls/shop/delay": 0})
        found = {each.key: each.value for each in await other.all("crawls/shop")}
        assert found == {"crawls/shop/delay": b"3", "crawls/shop/rate": b"9"}
        await one.remove("crawls/shop/delay")
        assert await other.get("crawls/shop/delay") is None
        assert [(each.value, each.by) for each in await other.history("crawls/shop/delay")] == [
            (None, "ann"),
            (b"3", "bob"),
            (b"2", "ann"),
        ]

    async def test_settings_are_watched(self, cluster: OpenCluster) -> None:
        one, other = LiveConfig(await cluster(), "ann"), LiveConfig(await cluster(), "bob")
        await one.set("crawls/shop/delay", b"1")
        async with other.watch("crawls/shop") as changes:
            async with asyncio.timeout(SOON):
                first = await anext(changes)
                assert (first.key, first.value) == ("crawls/shop/delay", b"1")
                await one.set("crawls/blog/delay", b"1")
                await one.change({"crawls/shop/delay": b"2"})
                second = await anext(changes)
                assert (second.key, second.value, second.version, second.by) == ("crawls/shop/delay", b"2", 1, "ann")
                await one.remove("crawls/shop/delay")
                third = await anext(changes)
                assert (third.key, third.value) == ("crawls/shop/delay", None)

    async def test_only_the_last_changes_are_kept(self, cluster: OpenCluster) -> None:
        config = LiveConfig(await cluster())
        for number in range(25):
            await config.set("n", b"%d" % number)
        kept = await config.history("n")
        assert [each.value for each in kept] == [b"%d" % number for number in range(24, 4, -1)]
        assert [each.version for each in kept] == list(range(24, 4, -1))

    @pytest.mark.parametrize("name", ["a/b", "https://shop.example/login", "..", ".", "100%", "a%2Fb", "é 中"])
    async def test_names_are_free(self, cluster: OpenCluster, name: str) -> None:
        """Also such that are no word of a path. A name that begins like another has nothing to do with it."""
        one, other = await cluster(), await cluster()
        async with Lock(one, name, "one"), asyncio.timeout(SOON):
            async with Lock(other, name.partition("/")[0] + "x"), Lock(other, "a"):
                assert [holder.who for holder in await Lock(other, name).holders()] == ["one"]
            async with Membership(one, name).join(name), Membership(one, "a").join("b"):
                assert [member.name for member in await Membership(other, name).members()] == [name]
            async with Election(one, name, "one").lead():
                leader = await Election(other, name).leader()
                assert leader is not None
                assert leader.who == "one"

    async def test_what_has_no_name_is_refused(self, cluster: OpenCluster) -> None:
        tree = await cluster()
        for make in (lambda: Lock(tree, ""), lambda: Election(tree, ""), lambda: Membership(tree, "")):
            with pytest.raises(Refused, match="needs a name"):
                make()
