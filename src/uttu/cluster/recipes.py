"""Locks, elections, memberships and live configuration, on the tree of any :class:`~uttu.cluster.base.Coordinator`.

::

    /locks/NAME/n0000000007        a place in the line; the lowest numbers hold the lock
    /leaders/NAME/n0000000003      a candidate; the lowest number leads
    /members/GROUP/NAME            a member, with its data
    /config/KEY…                   a setting
    /history/KEY…/n0000000012      one of its last changes: the value, who changed it, and when

**Lines.** Locks and elections are lines: each waiting process creates an ephemeral, sequential node, and watches only
the node before it. So they are fair, a release wakes up one process, and the tokens (``Node.created``) of successive
holders only grow. A process that dies leaves the line with its session.

If the connection breaks while a place is created, the place may exist without its process knowing. So each place has
an id in its value, by which it is found again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final
from uuid import uuid4

import msgspec

from uttu.cluster.base import (
    ChangeKind,
    Check,
    Coordinator,
    Create,
    Delete,
    Node,
    Operation,
    SessionState,
    Write,
    check_path,
)
from uttu.cluster.session import monotonic
from uttu.errors import (
    ClusterError,
    ConnectionSuspended,
    LockLost,
    LockTimeout,
    NodeExists,
    NoNode,
    Refused,
    SessionLost,
    WrongVersion,
)

_HISTORY: Final = 20
"""Changes of a setting that are kept."""
_SETTLE_SECONDS: Final = 0.1
_is_change: Final = re.compile(r"n\d{10}").fullmatch


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
        """Give the place up. Returns whether it still was there."""
        try:
            await self._tree.change(Delete(own.path))
        except NoNode:
            return False
        except ConnectionSuspended:
            # Whether it is deleted is unknown; it ends with the session at the latest.
            with contextlib.suppress(ClusterError):
                await self._tree.change(Delete(own.path))
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
                await _connected(self._tree)

    async def _find(self, id: str, session: str) -> Node | None:
        """The node with this id, after a broken connection. None if it was not created, or its session is over."""
        await _connected(self._tree)
        if self._tree.session != session:
            return None
        for node in await self._places():
            if msgspec.msgpack.decode(node.value, type=Place).id == id:
                return node
        return None


async def _connected(tree: Coordinator) -> None:
    """Wait until the coordinator is connected, and a moment at least.

    :raises ClusterError: it was closed.
    """
    await asyncio.sleep(_SETTLE_SECONDS)
    changed = asyncio.Event()
    stop = tree.listen(lambda state: changed.set())
    try:
        while tree.state != SessionState.CONNECTED:
            if tree.state == SessionState.CLOSED:
                raise ClusterError(f"The connection to {tree.url} was closed")
            await changed.wait()
            changed.clear()
    finally:
        stop()


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
        self._line = Line(tree, f"/locks/{name}", permits=permits)
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
        session = self._tree.session
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
        self._node, self._session = node, session
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
        self._line = Line(tree, f"/leaders/{name}")
        self._who = who or tree.session
        self._data = data

    @contextlib.asynccontextmanager
    async def lead(self) -> AsyncIterator[Leadership]:
        """Campaign, and lead while the block runs. Resigns at its end."""
        node = await self._line.enter(self._who, self._data)
        leadership = Leadership(self._tree, node.created)
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

    def __init__(self, tree: Coordinator, token: int) -> None:
        self.token = token
        self.session = tree.session
        self.lost = asyncio.Event()
        """Set when the office is gone; campaign again then."""
        self._tree = tree
        self.close: Callable[[], None] = tree.listen(self._on_state)

    @property
    def is_held(self) -> bool:
        """Whether to act: the office is held, and the connection is not suspended."""
        return not self.lost.is_set() and self._tree.state == SessionState.CONNECTED

    def _on_state(self, state: SessionState) -> None:
        if state in (SessionState.LOST, SessionState.CLOSED):
            self.lost.set()


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group. ``since`` is by the clock of the server."""

    name: str
    data: bytes
    since: float
    token: int


class MemberChange(msgspec.Struct, frozen=True):
    """A member came (or is there already), changed its data, or is gone."""

    kind: ChangeKind
    name: str
    member: Member | None = None


class Membership:
    """The members of a group."""

    def __init__(self, tree: Coordinator, group: str) -> None:
        self.group = group
        self._tree = tree
        self._path = check_path(f"/members/{group}")

    @contextlib.asynccontextmanager
    async def join(self, name: str, data: bytes = b"") -> AsyncIterator[None]:
        """Be a member while the block runs. After a lost session, the member joins again by itself.

        :raises NodeExists: the group has a member of this name.
        """
        path = check_path(f"{self._path}/{name}")
        await self._create(path, data)
        task = asyncio.create_task(self._keep(path, data))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with contextlib.suppress(ClusterError):
                if (node := await self._tree.read(path)) is not None and node.owner == self._tree.session:
                    await self._tree.change(Delete(path))

    async def members(self) -> list[Member]:
        return [_member(node) for node in await self._tree.children(self._path)]

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[MemberChange]]:
        """Hear who comes and goes. First come those who are there."""
        async with self._tree.watch(self._path, recursive=True) as changes:

            async def read() -> AsyncIterator[MemberChange]:
                async for change in changes:
                    if change.path != self._path:
                        name = change.path.rpartition("/")[2]
                        yield MemberChange(change.kind, name, _member(change.node) if change.node else None)

            yield read()

    async def _create(self, path: str, data: bytes) -> None:
        try:
            await self._tree.change(Create(path, data, ephemeral=True))
        except NodeExists as error:
            node = await self._tree.read(path)
            if node is None or node.owner != self._tree.session:
                raise NodeExists(f"The group {self.group!r} has a member named {path.rpartition('/')[2]!r}") from error

    async def _keep(self, path: str, data: bytes) -> None:
        """Join again after each lost session."""
        session = self._tree.session
        while True:
            lost = asyncio.Event()
            stop = self._tree.listen(lambda state, lost=lost: lost.set())  # type: ignore[misc]
            try:
                if self._tree.session == session:
                    await lost.wait()
                await _connected(self._tree)
                if self._tree.session != session:
                    await self._create(path, data)
                    session = self._tree.session
            except ClusterError:
                # The former node of this member may still be there, until its session ends.
                await asyncio.sleep(_SETTLE_SECONDS)
            finally:
                stop()


def _member(node: Node) -> Member:
    return Member(name=node.name, data=node.value, since=node.at, token=node.created)


class LiveSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, or a former value of one. ``value`` is None if it was removed."""

    key: str
    value: bytes | None
    version: int
    by: str
    at: float


class _Kept(msgspec.Struct, frozen=True):
    """How a setting is stored: the value, who wrote it, and when by the clock of its machine."""

    value: bytes | None
    by: str
    at: float
    version: int = -1


class LiveConfig:
    """Versioned settings. Keys are words between slashes, such as ``crawls/shop/delay``."""

    def __init__(self, tree: Coordinator, by: str = "") -> None:
        self._tree = tree
        self._by = by or tree.session

    async def get(self, key: str) -> LiveSetting | None:
        """The setting; None if it is not set."""
        node = await self._tree.read(_config_path(key))
        return _setting(node) if node is not None else None

    async def all(self, prefix: str = "") -> list[LiveSetting]:
        """All settings at or below a key, by key."""
        found: list[LiveSetting] = []
        waiting = [_config_path(prefix)]
        while waiting:
            path = waiting.pop()
            node = await self._tree.read(path)
            if node is not None and (setting := _setting(node)) is not None:
                found.append(setting)
            waiting += [child.path for child in await self._tree.children(path)]
        return sorted(found, key=lambda setting: setting.key)

    async def set(self, key: str, value: bytes, *, version: int | None = None) -> None:
        """Set one value.

        :param version: the version that it must have; -1 if it must not be set yet; None for any.
        :raises WrongVersion: somebody else has changed it.
        """
        await self.change({key: value}, {} if version is None else {key: version})

    async def remove(self, key: str, *, version: int | None = None) -> None:
        """:raises WrongVersion: somebody else has changed it."""
        await self.change({key: None}, {} if version is None else {key: version})

    async def change(self, values: Mapping[str, bytes | None], versions: Mapping[str, int] | None = None) -> None:
        """Set several values in one transaction; None removes one.

        :param versions: the versions that settings must have, also of settings that are not changed.
        :raises WrongVersion: somebody else has changed one of them.
        """
        versions = versions or {}
        while True:
            operations: list[Operation] = []
            for key in dict.fromkeys((*values, *versions)):
                operations += await self._operations(key, values, versions)
            try:
                await self._tree.change(*operations)
            except (NoNode, NodeExists, WrongVersion):
                await self._check(versions)
                continue  # it changed since it was read, and any version will do
            for key in values:
                await self._trim(key)
            return

    async def history(self, key: str) -> list[LiveSetting]:
        """The last ``_HISTORY`` changes of a setting, the newest first."""
        nodes = await self._changes(key)
        kept = [msgspec.msgpack.decode(node.value, type=_Kept) for node in reversed(nodes)]
        return [LiveSetting(key=key, value=each.value, version=each.version, by=each.by, at=each.at) for each in kept]

    @contextlib.asynccontextmanager
    async def watch(self, prefix: str = "") -> AsyncIterator[AsyncIterator[LiveSetting]]:
        """Hear of each change at or below a key. First come the present values."""
        async with self._tree.watch(_config_path(prefix), recursive=True) as changes:

            async def read() -> AsyncIterator[LiveSetting]:
                async for change in changes:
                    if change.node is not None and change.node.value:  # others only have children
                        yield _decode_setting(change.node)

            yield read()

    async def _operations(
        self, key: str, values: Mapping[str, bytes | None], versions: Mapping[str, int]
    ) -> Sequence[Operation]:
        path, demanded = _config_path(key), versions.get(key)
        node = await self._tree.read(path)
        present = -1 if node is None or _setting(node) is None else node.version
        if demanded is not None and demanded != present:
            raise WrongVersion(f"{key} has version {present}, not {demanded}: somebody else has changed it")
        if key not in values:
            return [Check(path, node.version)] if node is not None else []
        value = values[key]
        version = node.version + 1 if node is not None else 0
        kept = msgspec.msgpack.encode(_Kept(value, self._by, time.time(), version))
        if value is None and node is None:
            return []
        write: Operation = Create(path, kept) if node is None else Write(path, kept, node.version)
        return [write, Create(f"{_history_path(key)}/n", kept, sequential=True)]

    async def _check(self, versions: Mapping[str, int]) -> None:
        for key, demanded in versions.items():
            setting = await self.get(key)
            present = -1 if setting is None else setting.version
            if present != demanded:
                raise WrongVersion(f"{key} has version {present}, not {demanded}: somebody else has changed it")

    async def _changes(self, key: str) -> list[Node]:
        """The nodes of the last changes; other children belong to settings below this one."""
        return [node for node in await self._tree.children(_history_path(key)) if _is_change(node.name)]

    async def _trim(self, key: str) -> None:
        for node in (await self._changes(key))[:-_HISTORY]:
            with contextlib.suppress(NoNode):
                await self._tree.change(Delete(node.path))


def _setting(node: Node) -> LiveSetting | None:
    """The setting in a node; None if it was removed, or if the node only has children."""
    if not node.value:
        return None
    setting = _decode_setting(node)
    return setting if setting.value is not None else None


def _decode_setting(node: Node) -> LiveSetting:
    kept = msgspec.msgpack.decode(node.value, type=_Kept)
    key = node.path.removeprefix("/config/")
    return LiveSetting(key=key, value=kept.value, version=node.version, by=kept.by, at=kept.at)


def _config_path(key: str) -> str:
    return check_path(f"/config/{key}" if key else "/config")


def _history_path(key: str) -> str:
    if not key:
        raise Refused("A setting needs a name")
    return check_path(f"/history/{key}")
