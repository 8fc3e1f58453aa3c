"""Watches of a part of the tree, shared by all technologies.

Something wakes a watch up: a message, a watch of the server, or the clock. It then reads its part of the tree, and
reports how that differs from what it reported last. So a message that got lost, or a connection that was away, delays
a change but never hides it; changes in between are reported as one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

from uttu.cluster.base import ChangeKind, Node, TreeChange
from uttu.errors import ClusterError

ReadTree = Callable[[str, bool], Awaitable[list[Node]]]
"""Reads the node at a path and, if recursive, all below it."""


class Watches:
    """The watches of one coordinator.

    :param read: raises ``ClusterError`` while the server is away; then the watch tries again when it is woken up next.
    """

    def __init__(self, read: ReadTree) -> None:
        self._read = read
        self._open: set[SnapshotWatch] = set()

    @contextlib.asynccontextmanager
    async def open(self, path: str, *, recursive: bool) -> AsyncIterator[SnapshotWatch]:
        watch = SnapshotWatch(path, recursive, self._read)
        self._open.add(watch)
        watch.wake()
        try:
            yield watch
        finally:
            self._open.discard(watch)
            watch.close()

    def __len__(self) -> int:
        return len(self._open)

    def wake(self, paths: Iterable[str] | None = None) -> None:
        """Let watches look again: those of these paths, or all."""
        for watch in tuple(self._open):
            if paths is None or any(map(watch.covers, paths)):
                watch.wake()

    def close(self) -> None:
        for watch in tuple(self._open):
            watch.close()


class SnapshotWatch:
    """One watch. Iterating over it reads the tree when there may be something new."""

    def __init__(self, path: str, recursive: bool, read: ReadTree) -> None:
        self._path = path
        self._prefix = path.rstrip("/") + "/"
        self._recursive = recursive
        self._read = read
        self._known: dict[str, Node] | None = None
        self._pending: deque[TreeChange] = deque()
        self._due = asyncio.Event()
        self._is_closed = False

    def covers(self, path: str) -> bool:
        return path == self._path or (self._recursive and path.startswith(self._prefix))

    def wake(self) -> None:
        self._due.set()

    def close(self) -> None:
        self._is_closed = True
        self._due.set()

    def __aiter__(self) -> SnapshotWatch:
        return self

    async def __anext__(self) -> TreeChange:
        while not self._pending:
            await self._due.wait()
            if self._is_closed:
                raise StopAsyncIteration
            self._due.clear()
            try:
                found = {node.path: node for node in await self._read(self._path, self._recursive)}
            except ClusterError:
                continue  # whoever restores the connection wakes this watch up
            if self._known is None and self._path not in found:
                self._pending.append(TreeChange(ChangeKind.DELETED, self._path))
            self._pending.extend(compare(self._known, found))
            self._known = found
        return self._pending.popleft()


def compare(known: dict[str, Node] | None, found: dict[str, Node]) -> Iterator[TreeChange]:
    """The changes from ``known`` to ``found``, parents first; deletions first, children before parents."""
    before = known or {}
    gone = [path for path, node in before.items() if path not in found or found[path].created != node.created]
    for path in sorted(gone, reverse=True):
        yield TreeChange(ChangeKind.DELETED, path)
    for path in sorted(found):
        node, former = found[path], before.get(path)
        if former is None or former.created != node.created:
            yield TreeChange(ChangeKind.PRESENT if known is None else ChangeKind.CREATED, path, node)
        elif former.version != node.version:
            yield TreeChange(ChangeKind.CHANGED, path, node)
