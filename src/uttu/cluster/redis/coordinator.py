"""The tree of a coordinator on Redis.

Keys, all with the prefix ``uttu:{cluster}:``, so that they are on one node of a cluster::

    nodes        HASH    path → value, version, created, changed, owner, at, written, sequence (MessagePack)
    tree         ZSET    "PARENT\\0NAME" of every node, in the order of the bytes
    sessions     ZSET    session → when it ends, by the server's clock
    owned:ID     SET     the ephemeral nodes of a session
    counter      STRING  the last number given
    changes      channel of pub/sub: the paths that an operation changed

Every operation is one call of the Lua library in ``lua``, so it is atomic. It first ends the sessions that are over, by
the server's clock. So does every renewal, six times in a session's time in every process; the watches of others hear
of it by ``changes``. A message that gets lost is made up for: each process also looks at all that it watches when its
connection was restored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Final
from uuid import uuid4

import msgspec

from uttu.clients.addresses import mask_password
from uttu.clients.redis.address import make_clients
from uttu.clients.redis.connection import DedicatedConnection, check_server, close_clients
from uttu.clients.redis.errors import REDIS_ERRORS, call_until, explain_error, is_temporary, map_errors
from uttu.clients.redis.scripts import LuaLibrary, LuaOperations
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
    session_lost,
    was_closed,
    wrong_version,
)
from uttu.cluster.session import TimedSession, monotonic
from uttu.errors import (
    ClusterError,
    ClusterUnavailable,
    ConnectionSuspended,
)

_PREFIX: Final = "uttu:{cluster}:"
_ANY_VERSION: Final = -1
_FIRST_VALUE: Final = 4  # the place of the first value among the arguments of the library
_RECONNECT_SECONDS: Final = 0.5


class RedisCoordinator(TimedSession):
    """See :class:`uttu.cluster.base.Coordinator`. Open it with :meth:`open`."""

    def __init__(self, url: str, session_seconds: float = SESSION_SECONDS) -> None:
        super().__init__(mask_password(url), session_seconds, session_seconds / 20)
        self._client, self._sentinels = make_clients(url)
        self._operations = LuaOperations(self._client, _read_library())
        self._changes = DedicatedConnection(self._client, _PREFIX)
        self._listener: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, url: str, session_seconds: float = SESSION_SECONDS) -> RedisCoordinator:
        """Connect to a server and begin a session.

        :raises ConfigError: ``url`` is not the address of a Redis server.
        :raises ClusterUnavailable: the server can't be reached, or refuses the login.
        """
        coordinator = cls(url, session_seconds)
        try:
            with map_errors():
                problem, _ = await call_until(check_server(coordinator._client), _in(session_seconds))
            if problem:
                raise ClusterUnavailable(f"Cannot use {coordinator.url}: {problem}")
            await coordinator._start()
        except REDIS_ERRORS as error:
            await close_clients(coordinator._client, coordinator._sentinels)
            raise ClusterUnavailable(explain_error(coordinator.url, error)) from error
        except BaseException:
            await close_clients(coordinator._client, coordinator._sentinels)
            raise
        coordinator._listener = asyncio.create_task(coordinator._hear())
        return coordinator

    async def read(self, path: str) -> Node | None:
        found = await self._call("read", check_path(path))
        return _node(found[0]) if found else None

    async def children(self, path: str) -> list[Node]:
        return [_node(each) for each in await self._call("children", check_path(path))]

    async def change(self, *operations: Operation) -> Sequence[Node | None]:
        check_operations(operations)
        values: list[bytes] = []
        changes = [_encode(operation, values) for operation in operations]
        answer = await self._call("change", self.session, changes, values=values)
        if answer[0] != b"done":
            raise _error(self.url, *(each.decode() for each in answer))
        return [_node(each) if each else None for each in answer[1]]

    async def _begin(self) -> None:
        session, now = uuid4().hex, monotonic()
        await self._call("begin", session, self.session_seconds)
        self.session, self._renewed = session, now

    async def _look(self) -> None:
        if self._is_due:
            now = monotonic()
            if not await self._call("renew", self.session, self.session_seconds):
                raise session_lost(self.url)
            self._renewed = now

    async def _end(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        await self._changes.close()
        with contextlib.suppress(ClusterError):
            await self._call("end", self.session)
        await close_clients(self._client, self._sentinels)

    async def _read_part(self, path: str, recursive: bool) -> list[Node]:
        return [_node(each) for each in await self._call("part" if recursive else "read", path)]

    async def _hear(self) -> None:
        """Wake up watches when others change what they watch."""
        while True:
            try:
                await self._changes.open()
                await self._changes.send("SUBSCRIBE", f"{_PREFIX}changes")
                while True:
                    message = await self._changes.read(wait=self.session_seconds)
                    if message[0] == b"message":
                        self._watches.wake(msgspec.msgpack.decode(message[2], type=list[str]))
                    else:
                        self._watches.wake()  # subscribed: look at what was missed
            except REDIS_ERRORS:
                await self._changes.close()
                await asyncio.sleep(_RECONNECT_SECONDS)

    async def _call(self, operation: str, *arguments: Any, values: Sequence[bytes] = ()) -> Any:
        """Run an operation.

        :raises ConnectionSuspended: the server did not answer, so it may have been carried out or not.
        """
        if self._states.state == SessionState.CLOSED:
            raise was_closed(self.url)
        try:
            with map_errors():
                packed = msgspec.msgpack.encode(arguments)
                work = self._operations.run(_PREFIX, [_PREFIX, operation, packed, *values])
                return await call_until(work, _in(self.session_seconds / 3))
        except REDIS_ERRORS as error:
            kind = ConnectionSuspended if is_temporary(error) else ClusterUnavailable
            raise kind(explain_error(self.url, error)) from error


def _in(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@cache
def _read_library() -> LuaLibrary:
    return LuaLibrary.read("uttu.cluster.redis", relief=True)


def _encode(operation: Operation, values: list[bytes]) -> list[Any]:
    """An operation as the library takes it: the value is replaced by its place among the arguments."""
    path = operation.path
    if isinstance(operation, Create | Write):
        values.append(operation.value)
    place = len(values) + _FIRST_VALUE - 1
    match operation:
        case Create(_, _, ephemeral, sequential):
            if path == "/":
                raise node_exists(path)
            return ["create", path, place, ephemeral, sequential]
        case Write(_, _, version):
            return ["write", path, place, _ANY_VERSION if version is None else version]
        case Delete(_, version):
            return ["delete", path, _ANY_VERSION if version is None else version]
        case Check(_, version):
            return ["check", path, _ANY_VERSION if version is None else version]


def _node(fields: list[bytes]) -> Node:
    path, value, version, created, changed, owner, at, written = fields
    return Node(
        path=path.decode(),
        value=value,
        version=int(version),
        created=int(created),
        changed=int(changed),
        owner=owner.decode(),
        at=float(at),
        written=float(written),
    )


def _error(url: str, kind: str, path: str = "") -> ClusterError:
    match kind:
        case "lost":
            return session_lost(url)
        case "exists":
            return node_exists(path)
        case "none":
            return no_node(path)
        case "version":
            return wrong_version(path)
        case "children":
            return not_empty(path)
        case _:
            return no_children(path)
