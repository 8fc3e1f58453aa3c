"""Locks and elections, on the tree of any :class:`~uttu.cluster.base.Coordinator`.

::

    /locks/NAME/n0000000007        a place in the line; the lowest numbers hold the lock
    /leaders/NAME/n0000000003      a candidate; the lowest number leads

Both are lines: each waiting process creates an ephemeral, sequential node, and watches only the node before it. So they
are fair, a release wakes up one process, and the tokens (``Node.created``) of successive holders only grow. A process
that dies leaves the line with its session.

If the connection breaks while a place is created, the place may exist without its process knowing. So each place has
an id in its value, by which it is found again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import msgspec

from uttu.cluster.base import ChangeKind, Coordinator, Create, Delete, Node, SessionState, check_path, to_word
from uttu.cluster.session import monotonic, wait_for_state, wait_until_connected
from uttu.errors import ClusterError, ConnectionSuspended, LockLost, LockTimeout, NoNode, SessionLost


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a node in a line: who stands there, and since when by the clock of its machine."""

    id: str
    who: str
    since: float
    data: bytes = b""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock, leads, or waits for it."""

    who: str
    token: int
    since: float
    data: bytes = b""


class Line:
    """A line of processes at one path. The first ``permits`` of it have their turn."""

    def __init__(self, tree: Coordinator, path: str, *, permits: int = 1) -> None:
        self._tree = tree
        self._path = check_path(path)
        self._permits = permits

    async def enter(self, who: str, data: bytes = b"") -> Node:
        """Take the last place."""
        place = Place(id=uuid4().hex, who=who, since=time.time(), data=data)
        create = Create(f"{self._path}/n", msgspec.msgpack.encode(place), ephemeral=True, sequential=True)
        session = self._tree.session
        try:
            [node] = await self._tree.change(create)
        except ConnectionSuspended:
            node = await self._find(place.id, session)
            if node is None:
                [node] = await self._tree.change(create)
        assert node is not None
        return node

    async def wait_for_turn(self, own: Node) -> None:
        """Wait until ``own`` is among the first ``permits``.

        :raises SessionLost: the place is gone.
        """
        if self._permits > 1:
            await self._wait_among_others(own)
            return
        while True:
            ahead = [node for node in await self._places() if node.name <= own.name]
            if not ahead or ahead[-1].path != own.path:
                raise SessionLost(f"The place in {self._path} is gone: its session ended")
            if len(ahead) == 1:
                return
            async with self._tree.watch(ahead[-2].path) as changes:
                async for change in changes:
                    if change.kind == ChangeKind.DELETED:
                        break

    async def _wait_among_others(self, own: Node) -> None:
        """Any of those ahead may leave first, so all are watched."""
        ahead: set[str] = set()
        is_seen = False  # the present nodes come in order, so then all ahead are known
        async with self._tree.watch(self._path, recursive=True) as changes:
            async for change in changes:
                if change.path == own.path:
                    is_seen = True
                    if change.kind == ChangeKind.DELETED:
                        break
                elif change.kind == ChangeKind.DELETED:
                    ahead.discard(change.path)
                elif self._path < change.path < own.path:
                    ahead.add(change.path)
                if is_seen and len(ahead) < self._permits:
                    return
        raise SessionLost(f"The place in {self._path} is gone: its session ended")

    async def leave(self, own: Node) -> bool:
        """Give the place up. Returns whether it still was there.

        While the connection is suspended, this waits: the place would block others as long as the session lives.
        """
        while True:
            try:
                await self._tree.change(Delete(own.path))
            except NoNode:
                return False
            except ConnectionSuspended:
                await wait_for_state(self._tree, lambda state: state != SessionState.SUSPENDED)
                if own.owner != self._tree.session or self._tree.state != SessionState.CONNECTED:
                    return False  # it ended with its session
            else:
                return True

    async def holders(self) -> list[Holder]:
        """Those whose turn it is and those who wait, in the order of the line."""
        return [
            Holder(who=place.who, token=node.created, since=place.since, data=place.data)
            for node in await self._places()
            for place in [msgspec.msgpack.decode(node.value, type=Place)]
        ]

    async def _places(self) -> list[Node]:
        """The line. While the connection is suspended, this waits: the place may still be there."""
        while True:
            try:
                return await self._tree.children(self._path)
            except ConnectionSuspended:
                await wait_until_connected(self._tree)

    async def _find(self, id: str, session: str) -> Node | None:
        """The node with this id, after a broken connection. None if it was not created, or its session is over."""
        await wait_until_connected(self._tree)
        if self._tree.session != session:
            return None
        for node in await self._places():
            if msgspec.msgpack.decode(node.value, type=Place).id == id:
                return node
        return None


class Lock:
    """Mutual exclusion by name; with ``permits``, a semaphore.

    ``async with lock as token`` waits for it. Check :attr:`is_held` before acting after a wait, and pass the token to
    whatever the lock protects.

    :param seconds: the lock ends by itself after this time; None for no bound but the session's.
    """

    def __init__(
        self, tree: Coordinator, name: str, who: str = "", *, seconds: float | None = None, permits: int = 1
    ) -> None:
        self.name = name
        self._tree = tree
        self._line = Line(tree, f"/locks/{to_word(name)}", permits=permits)
        self._who = who or tree.session
        self._seconds = seconds
        self._node: Node | None = None
        self._until = 0.0
        self._expiry: asyncio.TimerHandle | None = None
        self._session = ""
        self._ending: set[asyncio.Task[bool]] = set()

    async def acquire(self, wait: float | None = None) -> int:
        """Wait in line for the lock; returns the token.

        :param wait: seconds to wait at most; None for as long as it takes.
        :raises LockTimeout: others held it for that long.
        """
        if self._node is not None:
            raise ClusterError(f"The lock {self.name!r} is held by this object already")
        node = await self._line.enter(self._who)
        try:
            async with asyncio.timeout(wait):
                await self._line.wait_for_turn(node)
        except TimeoutError as error:
            await self._line.leave(node)
            ahead = [each.who for each in await self._line.holders()][:1]
            held = f": it is held by {ahead[0]}" if ahead else ""
            raise LockTimeout(f"The lock {self.name!r} was not free within {wait:g} s{held}") from error
        except BaseException:
            with contextlib.suppress(ClusterError):
                await asyncio.shield(self._line.leave(node))
            raise
        self._node, self._session = node, node.owner
        if self._seconds is not None:
            self._until = monotonic() + self._seconds
            self._expiry = asyncio.get_running_loop().call_later(self._seconds, self._expire)
        return node.created

    async def release(self) -> None:
        """Give the lock up.

        :raises LockLost: it was not held any more; others may have had it since.
        """
        node, held = self._node, self.is_held
        self._drop()
        if node is not None and self._session == self._tree.session and self._tree.state != SessionState.CLOSED:
            try:
                held = await self._line.leave(node) and held
            except SessionLost:
                held = False
        if not held:
            raise LockLost(f"The lock {self.name!r} was lost before it was released")

    @property
    def is_held(self) -> bool:
        """Whether it is held for sure at this moment: not while the connection is suspended."""
        return (
            self._node is not None
            and self._tree.state == SessionState.CONNECTED
            and self._tree.session == self._session
            and (self._seconds is None or monotonic() < self._until)
        )

    @property
    def remaining(self) -> float:
        """Seconds until the lock ends by itself: its own time, or the session's if it has none. 0 if it is lost."""
        if not self.is_held:
            return 0.0
        return self._tree.session_seconds if self._seconds is None else max(0.0, self._until - monotonic())

    @property
    def token(self) -> int:
        """:raises LockLost: it is not held."""
        if self._node is None:
            raise LockLost(f"The lock {self.name!r} is not held")
        return self._node.created

    async def holders(self) -> list[Holder]:
        """Who holds the lock and who waits for it, in the order of the line."""
        return await self._line.holders()

    async def __aenter__(self) -> int:
        return await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    def _expire(self) -> None:
        node = self._node
        self._drop()
        if node is not None and self._session == self._tree.session:
            task = asyncio.ensure_future(self._line.leave(node))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _drop(self) -> None:
        self._node = None
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


class Election:
    """One leader by name. Whoever campaigns leads when all who campaigned before are gone or have resigned."""

    def __init__(self, tree: Coordinator, name: str, who: str = "", data: bytes = b"") -> None:
        self.name = name
        self._tree = tree
        self._line = Line(tree, f"/leaders/{to_word(name)}")
        self._who = who or tree.session
        self._data = data

    @contextlib.asynccontextmanager
    async def lead(self) -> AsyncIterator[Leadership]:
        """Campaign, and lead while the block runs. Resigns at its end."""
        node = await self._line.enter(self._who, self._data)
        leadership = Leadership(self._tree, node)
        try:
            await self._line.wait_for_turn(node)
            yield leadership
        finally:
            leadership.close()
            if leadership.session == self._tree.session:
                with contextlib.suppress(ClusterError):
                    await asyncio.shield(self._line.leave(node))

    async def leader(self) -> Holder | None:
        """Who leads, and since when it stands in line; None if nobody does."""
        holders = await self._line.holders()
        return holders[0] if holders else None


class Leadership:
    """An office that is held. ``token`` fences what the leader writes."""

    def __init__(self, tree: Coordinator, node: Node) -> None:
        self.token = node.created
        self.session = node.owner
        self.lost = asyncio.Event()
        """Set when the office is gone; campaign again then."""
        self._tree = tree
        self.close: Callable[[], None] = tree.listen(self._on_state)

    @property
    def is_held(self) -> bool:
        """Whether to act: the office is held, and the connection is not suspended."""
        return (
            not self.lost.is_set() and self._tree.state == SessionState.CONNECTED and self._tree.session == self.session
        )

    def _on_state(self, state: SessionState) -> None:
        if state in (SessionState.LOST, SessionState.CLOSED):
            self.lost.set()
