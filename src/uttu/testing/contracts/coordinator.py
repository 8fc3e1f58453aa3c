"""The contract of a coordinator: its tree and its sessions. :mod:`uttu.testing.contracts.recipes` has the rest.

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
from uttu.errors import ClusterError, NodeExists, NoNode, NotEmpty, Refused, WrongVersion

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


async def wait_for_node(tree: Coordinator, path: str) -> None:
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
