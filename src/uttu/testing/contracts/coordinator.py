"""The contract of a coordinator: its tree, its sessions, and the recipes on top.

A test file inherits the classes and supplies the fixture ``cluster``, a function that opens another connection to one
and the same tree, each with a session of ``SESSION`` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest

from uttu.cluster.base import (
    MAX_VALUE,
    ChangeKind,
    Check,
    Coordinator,
    Create,
    Delete,
    SessionState,
    TreeChange,
    TreeWatch,
    Write,
)
from uttu.cluster.config import LiveConfig
from uttu.cluster.locks import Election, Lock
from uttu.cluster.members import Membership
from uttu.errors import ClusterError, LockLost, LockTimeout, NodeExists, NoNode, NotEmpty, Refused, WrongVersion

SESSION: Final = 4.0
"""The ``session_seconds`` of the connections in these tests."""
SOON: Final = 5.0
"""Seconds in which something that happens at once is seen on a busy machine."""

OpenCluster = Callable[[], Awaitable[Coordinator]]


async def take(changes: TreeWatch | AsyncIterator[TreeChange]) -> TreeChange:
    async with asyncio.timeout(SOON):
        return await anext(aiter(changes))


async def expect(changes: TreeWatch, kind: ChangeKind, path: str) -> TreeChange:
    change = await take(changes)
    assert (change.kind, change.path) == (kind, path)
    return change


async def _appears(tree: Coordinator, path: str) -> None:
    """Wait until there is a node at a path."""
    async with asyncio.timeout(SOON), tree.watch(path) as changes:
        async for change in changes:
            if change.kind != ChangeKind.DELETED:
                return


class TreeContract:
    """Nodes, versions, transactions and watches."""

    async def test_a_node_is_created_read_written_and_deleted(self, cluster: OpenCluster) -> None:
        one, other = await cluster(), await cluster()
        [node] = await one.change(Create("/a", b"1"))
        assert node is not None
        assert (node.path, node.value, node.version, node.owner, node.name) == ("/a", b"1", 0, "", "a")
        assert await other.read("/a") == node
        [written] = await other.change(Write("/a", b"2"))
        assert written is not None
        assert (written.value, written.version, written.created) == (b"2", 1, node.created)
        assert written.changed > node.changed
        assert await one.read("/a") == written
        assert await one.change(Delete("/a")) == [None]
        assert await other.read("/a") is None

    async def test_parents_are_created(self, cluster: OpenCluster) -> None:
        one = await cluster()
        await one.change(Create("/a/b/c", b"1"))
        assert [node.path for node in await one.children("/a")] == ["/a/b"]
        assert [node.value for node in await one.children("/a/b")] == [b"1"]
        assert await one.children("/a/b/c") == await one.children("/nothing") == []
        with pytest.raises(NotEmpty):
            await one.change(Delete("/a/b"))

    async def test_children_are_sorted_by_name(self, cluster: OpenCluster) -> None:
        one = await cluster()
        for name in ("b", "a", "é", "c"):
            await one.change(Create(f"/x/{name}"))
        assert [node.name for node in await one.children("/x")] == ["a", "b", "c", "é"]

    async def test_errors(self, cluster: OpenCluster) -> None:
        one = await cluster()
        await one.change(Create("/a"))
        for operation, error in (
            (Create("/a"), NodeExists),
            (Create("/"), NodeExists),
            (Write("/b", b""), NoNode),
            (Delete("/b"), NoNode),
            (Check("/b"), NoNode),
            (Write("/a", b"", 1), WrongVersion),
            (Delete("/a", 1), WrongVersion),
            (Check("/a", 1), WrongVersion),
        ):
            with pytest.raises(error):
                await one.change(operation)

    @pytest.mark.parametrize(
        "path", ["", "a", "/a/", "//", "/a//b", "/a/../b", "/./a", "/a\0b", "/\n", "/zookeeper", "/" + "x" * 1001]
    )
    async def test_what_is_no_path_is_refused(self, cluster: OpenCluster, path: str) -> None:
        one = await cluster()
        with pytest.raises(Refused, match="is not a path"):
            await one.change(Create(path))
        with pytest.raises(Refused, match="is not a path"):
            await one.read(path)

    async def test_the_largest_value(self, cluster: OpenCluster) -> None:
        one, other = await cluster(), await cluster()
        value = bytes(range(250)) * (MAX_VALUE // 250)
        await one.change(Create("/a", value))
        node = await other.read("/a")
        assert node is not None
        assert node.value == value
        with pytest.raises(Refused, match="1,000,001 bytes"):
            await one.change(Write("/a", value + b"x"))

    async def test_numbers_only_grow(self, cluster: OpenCluster) -> None:
        one, other = await cluster(), await cluster()
        numbers = []
        for each in (one, other, one):
            [node] = await each.change(Create("/a"))
            assert node is not None
            numbers.append(node.created)
            await each.change(Delete("/a"))
        assert numbers == sorted(set(numbers))

    async def test_sequential_nodes(self, cluster: OpenCluster) -> None:
        one, other = await cluster(), await cluster()
        made = [(await each.change(Create("/q/n", sequential=True)))[0] for each in (one, other, one)]
        names = [node.name for node in made if node is not None]
        assert names == sorted(set(names))
        assert all(len(name) == 11 and name[1:].isdigit() for name in names)
        await one.change(Delete(f"/q/{names[-1]}"))
        [last] = await one.change(Create("/q/n", sequential=True))
        assert last is not None
        assert last.name > names[-1]

    async def test_a_transaction_is_applied_as_a_whole(self, cluster: OpenCluster) -> None:
        one = await cluster()
        await one.change(Create("/a", b"1"), Create("/b", b"2"))
        for wrong in (Check("/a", 5), Create("/b"), Delete("/nothing")):
            with pytest.raises(ClusterError):
                await one.change(Write("/a", b"x"), Create("/c"), wrong, Delete("/b"))
            assert await one.read("/c") is None
            nodes = [await one.read(path) for path in ("/a", "/b")]
            assert [node.value for node in nodes if node is not None] == [b"1", b"2"]
        done = await one.change(Check("/a", 0), Write("/a", b"3", 0), Create("/a/c"), Delete("/b"))
        assert [node and node.path for node in done] == ["/a", "/a", "/a/c", None]

    async def test_compare_and_set_loses_no_update(self, cluster: OpenCluster) -> None:
        trees = [await cluster() for _ in range(3)]
        await trees[0].change(Create("/n", b"0"))

        async def count(tree: Coordinator) -> None:
            done = 0
            while done < 10:
                node = await tree.read("/n")
                assert node is not None
                try:
                    await tree.change(Write("/n", b"%d" % (int(node.value) + 1), node.version))
                except WrongVersion:
                    continue
                done += 1

        await asyncio.gather(*map(count, trees))
        node = await trees[0].read("/n")
        assert node is not None
        assert (node.value, node.version) == (b"30", 30)

    async def test_an_ephemeral_node_ends_with_its_session(self, cluster: OpenCluster) -> None:
        one, other = await cluster(), await cluster()
        [node] = await one.change(Create("/a/e", b"1", ephemeral=True))
        assert node is not None
        assert node.owner == one.session
        with pytest.raises(Refused, match="ephemeral"):
            await other.change(Create("/a/e/child"))
        async with other.watch("/a/e") as changes:
            await expect(changes, ChangeKind.PRESENT, "/a/e")
            await one.close()
            await expect(changes, ChangeKind.DELETED, "/a/e")
        assert await other.read("/a/e") is None
        assert await other.read("/a") is not None

    async def test_a_watch_of_one_node(self, cluster: OpenCluster) -> None:
        one, other = await cluster(), await cluster()
        async with one.watch("/a") as changes:
            await expect(changes, ChangeKind.DELETED, "/a")
            await other.change(Create("/a", b"1"))
            await expect(changes, ChangeKind.CREATED, "/a")
            await other.change(Create("/a/child"))
            await other.change(Write("/a", b"2"))
            change = await expect(changes, ChangeKind.CHANGED, "/a")
            assert change.node is not None
            assert change.node.value == b"2"
            await other.change(Delete("/a/child"))
            await other.change(Delete("/a"))
            await expect(changes, ChangeKind.DELETED, "/a")

    async def test_a_watch_of_a_subtree(self, cluster: OpenCluster) -> None:
        one, other = await cluster(), await cluster()
        await other.change(Create("/a/b", b"1"), Create("/ab"))
        async with one.watch("/a", recursive=True) as changes:
            await expect(changes, ChangeKind.PRESENT, "/a")
            await expect(changes, ChangeKind.PRESENT, "/a/b")
            await other.change(Create("/ac"))
            await other.change(Create("/a/c/d"))
            await expect(changes, ChangeKind.CREATED, "/a/c")
            await expect(changes, ChangeKind.CREATED, "/a/c/d")
            await other.change(Write("/a/b", b"2"))
            await expect(changes, ChangeKind.CHANGED, "/a/b")
            await other.change(Delete("/a/c/d"), Delete("/a/c"))
            await expect(changes, ChangeKind.DELETED, "/a/c/d")
            await expect(changes, ChangeKind.DELETED, "/a/c")

    async def test_own_changes_are_watched_too(self, cluster: OpenCluster) -> None:
        one = await cluster()
        async with one.watch("/a") as changes:
            await expect(changes, ChangeKind.DELETED, "/a")
            await one.change(Create("/a"))
            await expect(changes, ChangeKind.CREATED, "/a")

    async def test_a_node_that_was_replaced_is_reported(self, cluster: OpenCluster) -> None:
        one, other = await cluster(), await cluster()
        await other.change(Create("/a", b"1"))
        async with one.watch("/a") as changes:
            first = await expect(changes, ChangeKind.PRESENT, "/a")
            await other.change(Delete("/a"), Create("/a", b"1"))
            await expect(changes, ChangeKind.DELETED, "/a")
            second = await expect(changes, ChangeKind.CREATED, "/a")
            assert first.node is not None
            assert second.node is not None
            assert second.node.created > first.node.created

    async def test_states(self, cluster: OpenCluster) -> None:
        one = await cluster()
        heard: list[SessionState] = []
        stop = one.listen(heard.append)
        assert one.state == SessionState.CONNECTED
        assert one.session_seconds > 0
        async with one.watch("/a") as changes:
            await expect(changes, ChangeKind.DELETED, "/a")
            await one.close()
            with pytest.raises(StopAsyncIteration):
                await take(changes)
        assert [heard[-1], one.state] == [SessionState.CLOSED] * 2
        stop()
        await one.close()
        with pytest.raises(ClusterError, match="was closed"):
            await one.read("/a")


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
            await _appears(trees[0], f"/locks/line/n{number:010d}")
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
