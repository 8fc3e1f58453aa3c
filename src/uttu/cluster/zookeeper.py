"""The tree of a coordinator on ZooKeeper, by way of kazoo.

The tree is ZooKeeper's own, below the root of the address. ``created`` is the ``czxid`` of a node.

kazoo works in its threads. Their results are handed over to the event loop, so nothing here blocks it.

ZooKeeper ends a session when it has not heard of it for ``session_seconds``, and a client that is cut off does not
hear of it. So this process asks something six times in that time, and assumes by its clock
(:mod:`uttu.cluster.session`) that its session is over, not later than the server does. It then leaves that session for
good and begins another.

kazoo has one-time watches only. A watch here sets them on all nodes it covers each time when it reads them. kazoo calls
one function for all of them, so they do not pile up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo import exceptions as refused
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, WatchedEvent, ZnodeStat

from uttu.clients import summarize_error
from uttu.clients.zookeeper import ZooKeeperAddress
from uttu.cluster.base import (
    SESSION_SECONDS,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    SessionState,
    Write,
    check_operations,
    check_path,
    no_children,
    no_node,
    node_exists,
    not_empty,
    parent_of,
    session_lost,
    was_closed,
    wrong_version,
)
from uttu.cluster.session import TimedSession, monotonic
from uttu.errors import (
    ClusterError,
    ClusterUnavailable,
    ConnectionSuspended,
    Refused,
)

_ANY_VERSION: Final = -1
_RACES: Final = 20  # how often a transaction is built again because others created or deleted its parents
_BROKEN: Final = (
    refused.ConnectionLoss,
    refused.ConnectionClosedError,
    refused.OperationTimeoutError,
    refused.SessionMovedError,
    refused.NotReadOnlyCallError,
    KazooTimeoutError,
    TimeoutError,
    OSError,
)


class ZooKeeperCoordinator(TimedSession):
    """See :class:`uttu.cluster.base.Coordinator`. Open it with :meth:`open`."""

    def __init__(self, address: ZooKeeperAddress, session_seconds: float = SESSION_SECONDS) -> None:
        super().__init__(address.url, session_seconds, session_seconds / 20)
        self._address = address
        self._client: KazooClient | None = None
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, url: str, session_seconds: float = SESSION_SECONDS) -> ZooKeeperCoordinator:
        """Connect to the servers and begin a session.

        :raises ConfigError: ``url`` is not an address of ZooKeeper servers.
        :raises ClusterUnavailable: no server can be reached, or it refuses the login.
        """
        coordinator = cls(ZooKeeperAddress.parse(url), session_seconds)
        try:
            await coordinator._start()
        except BaseException as error:
            await coordinator._leave()
            if isinstance(error, ConnectionSuspended):
                raise ClusterUnavailable(str(error)) from error
            raise
        return coordinator

    @property
    def client(self) -> KazooClient:
        """kazoo's client, for all that Uttu has no words for. Another one after a lost session."""
        if self._client is None:
            raise was_closed(self.url)
        return self._client

    async def read(self, path: str) -> Node | None:
        self._catch_up(check_path(path))
        return await self._get(path)

    async def children(self, path: str) -> list[Node]:
        self._catch_up(check_path(path))
        return [node for node in await self._read_children(path) if node is not None]

    async def change(self, *operations: Operation) -> Sequence[Node | None]:
        check_operations(operations)
        if len(operations) == 1:
            return [await self._apply(operations[0])]
        for _ in range(_RACES):
            try:
                return await self._transact(operations)
            except _Raced:
                continue
        raise ConnectionSuspended(f"{operations[0].path}: others change its parents all the time")

    # The session.

    async def _begin(self) -> None:
        await self._leave()
        client = self._address.make_client(self.session_seconds)
        client.add_listener(self._on_state)
        self._client, now = client, monotonic()
        try:
            connected = client.start_async()
            await asyncio.to_thread(connected.wait, self.session_seconds)
            if not client.connected:
                raise ClusterUnavailable(f"{self.url} can't be reached: none of its servers answered")
            await self._ask(client.ensure_path_async, "/")
        except (*_BROKEN, refused.AuthFailedError) as error:
            raise ClusterUnavailable(_explain(self.url, error)) from error
        if client.client_id is None:
            raise ConnectionSuspended(f"The connection to {self.url} broke")
        self.session = f"{client.client_id[0]:x}"
        self._renewed = now

    async def _look(self) -> None:
        if self._is_due:
            now, client = monotonic(), self.client
            await self._ask(client.exists_async, "/")
            if client.client_id is None or f"{client.client_id[0]:x}" != self.session:
                raise session_lost(self.url)
            self._renewed = now
            self._watches.wake()

    async def _end(self) -> None:
        await self._leave()

    async def _leave(self) -> None:
        """End the session, if there is one."""
        client, self._client = self._client, None
        if client is not None:
            client.remove_listener(self._on_state)

            def end() -> None:
                with contextlib.suppress(Exception):  # nothing more can be done for it
                    client.stop()
                    client.close()

            await asyncio.to_thread(end)

    def _on_state(self, state: str) -> None:
        """Called by kazoo in a thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._set_state, state)

    def _set_state(self, state: str) -> None:
        if self._states.state in (SessionState.CLOSED, SessionState.LOST):
            return
        if state == KazooState.LOST:
            self._states.set(SessionState.LOST)
        elif state == KazooState.SUSPENDED:
            self._states.set(SessionState.SUSPENDED)

    # Reading.

    def _catch_up(self, path: str) -> None:
        """Let the server see all writes that ended before, also those at other servers, before it answers what follows.

        Requests are answered in their order, so nobody waits for this one.
        """
        with contextlib.suppress(refused.KazooException):
            self.client.sync_async(path)

    async def _get(self, path: str, watch: Callable[[WatchedEvent], None] | None = None) -> Node | None:
        try:
            value, stat = await self._ask(self.client.get_async, path, watch)
        except refused.NoNodeError:
            if watch is not None and await self._ask(self.client.exists_async, path, watch) is not None:
                return await self._get(path, watch)  # it was created in between
            return None
        return _node(path, value, stat)

    async def _read_children(self, path: str, watch: Callable[[WatchedEvent], None] | None = None) -> list[Node | None]:
        try:
            names = await self._ask(self.client.get_children_async, path, watch)
        except refused.NoNodeError:
            return []
        prefix = path.rstrip("/")
        paths = [f"{prefix}/{name}" for name in sorted(names) if prefix or name != "zookeeper"]
        return await asyncio.gather(*(self._get(each, watch) for each in paths))

    async def _read_part(self, path: str, recursive: bool) -> list[Node]:
        found: list[Node] = []
        root = await self._get(path, self._on_event)
        if root is not None:
            found.append(root)
        waiting = [path] if recursive and root is not None else []
        while waiting:
            for node in await self._read_children(waiting.pop(), self._on_event):
                if node is not None:
                    found.append(node)
                    if not node.owner:  # ephemeral nodes have no children
                        waiting.append(node.path)
        return found

    def _on_event(self, event: WatchedEvent) -> None:
        """Called by kazoo in a thread when a watch fires."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._watches.wake, [event.path] if event.path else None)

    # Writing.

    async def _apply(self, operation: Operation) -> Node | None:
        client, path = self.client, operation.path
        match operation:
            case Create(_, value, ephemeral, sequential):
                if path == "/":
                    raise node_exists(path)
                made, stat = await self._ask(client.create_async, path, value, None, ephemeral, sequential, True, True)
                return _node(made, value, stat)
            case Write(_, value, version):
                stat = await self._ask(client.set_async, path, value, _demanded(version))
                return _node(path, value, stat)
            case Delete(_, version):
                if path == "/":
                    raise not_empty(path)
                await self._ask(client.delete_async, path, _demanded(version))
                return None
            case Check(_, version):
                node = await self.read(path)
                if node is None:
                    raise no_node(path)
                if version is not None and node.version != version:
                    raise wrong_version(path)
                return node

    async def _transact(self, operations: Sequence[Operation]) -> list[Node | None]:
        """Apply the operations in one transaction, together with the creation of missing parents."""
        transaction = self.client.transaction()
        made: set[str] = set()
        places: list[int] = []
        for operation in operations:
            path = operation.path
            if isinstance(operation, Create):
                for parent in await self._missing_parents(path, made):
                    transaction.create(parent)
                    made.add(parent)
                transaction.create(path, operation.value, None, operation.ephemeral, operation.sequential)
                made.add(path)
            elif isinstance(operation, Write):
                transaction.set_data(path, operation.value, _demanded(operation.version))
            elif isinstance(operation, Delete):
                transaction.delete(path, _demanded(operation.version))
                made.discard(path)
            else:
                transaction.check(path, _demanded(operation.version))
            places.append(len(transaction.operations) - 1)
        results = await self._ask(transaction.commit_async)
        for place, result in enumerate(results):
            if isinstance(result, refused.RolledBackError | refused.RuntimeInconsistency):
                continue
            if isinstance(result, Exception):
                if place not in places:
                    raise _Raced from result  # somebody else created a parent
                raise _map(self.url, operations[places.index(place)].path, result)
        return [
            await self._result(operation, results[place]) for operation, place in zip(operations, places, strict=True)
        ]

    async def _missing_parents(self, path: str, made: set[str]) -> list[str]:
        missing: list[str] = []
        parent = parent_of(path)
        while parent != "/" and parent not in made and await self._ask(self.client.exists_async, parent) is None:
            missing.append(parent)
            parent = parent_of(parent)
        return missing[::-1]

    async def _result(self, operation: Operation, result: Any) -> Node | None:
        if isinstance(operation, Delete):
            return None
        if isinstance(operation, Write):
            return _node(operation.path, operation.value, result)
        return await self._get(result if isinstance(operation, Create) else operation.path)

    async def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call one of kazoo's asynchronous functions, and wait for its result.

        :raises ConnectionSuspended: no answer came, so it may have been carried out or not.
        """
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_transfer, result, future)

        path = arguments[0] if arguments and isinstance(arguments[0], str) else ""
        try:
            call(*arguments).rawlink(done)
            async with asyncio.timeout(self.session_seconds / 3):
                return await future
        except refused.NoNodeError as error:
            if call.__name__ in ("get_async", "get_children_async"):
                raise
            raise _map(self.url, path, error) from error
        except (refused.KazooException, *_BROKEN) as error:
            raise _map(self.url, path, error) from error


class _Raced(Exception):
    """A parent was created by somebody else between the look and the transaction."""


def _transfer(result: Any, future: asyncio.Future[Any]) -> None:
    if future.done():
        return
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.value)


def _demanded(version: int | None) -> int:
    return _ANY_VERSION if version is None else version


def _node(path: str, value: bytes, stat: ZnodeStat) -> Node:
    return Node(
        path=path,
        value=value,
        version=stat.version,
        created=stat.czxid,
        changed=stat.mzxid,
        owner=f"{stat.ephemeralOwner:x}" if stat.ephemeralOwner else "",
        at=stat.ctime / 1000,
        written=stat.mtime / 1000,
    )


def _explain(url: str, error: BaseException) -> str:
    if isinstance(error, refused.AuthFailedError):
        return f"{url} refuses the login. Check the user and the password in the address"
    return f"{url} can't be reached: {summarize_error(error)}"


def _map(url: str, path: str, error: BaseException) -> ClusterError:
    match error:
        case refused.NoNodeError():
            return no_node(path)
        case refused.NodeExistsError():
            return node_exists(path)
        case refused.BadVersionError():
            return wrong_version(path)
        case refused.NotEmptyError():
            return not_empty(path)
        case refused.NoChildrenForEphemeralsError():
            return no_children(parent_of(path))
        case refused.NoAuthError() | refused.InvalidACLError():
            return Refused(f"{url} does not permit this user to use {path}")
        case refused.AuthFailedError():
            return ClusterUnavailable(_explain(url, error))
        case refused.SessionExpiredError():
            return session_lost(url)
    if isinstance(error, _BROKEN):
        return ConnectionSuspended(_explain(url, error))
    return Refused(f"{url} refuses {path}: {summarize_error(error)}")
