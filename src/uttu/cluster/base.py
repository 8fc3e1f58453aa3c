"""The contract of a Coordinator: a small tree of nodes that all processes of a fleet see alike.

::

    /members/workers/w1         ephemeral: gone with the session of its process
    /locks/login:shop/0000000007    ephemeral and sequential: a place in the line for a lock
    /config/crawls/shop/delay   persistent, with a version: a setting that workers watch

The tree is the one of ZooKeeper. Redis and files keep the same tree in their own way. Locks, elections, memberships
and live configuration (``locks``, ``members``, ``config``) are written once, on top of it.

**Nodes.** A path is ``/`` or words between slashes. A node has a value (at most ``MAX_VALUE`` bytes), a ``version``
that counts its writes from 0, and ``created``, a number from one counter for the whole tree. The counter only grows,
also if a node is deleted and created again, so ``created`` serves as a *fencing token*. ``create`` creates missing
parents; they are empty and persistent. An *ephemeral* node belongs to a session, ends with it, and has no children. A
*sequential* node has ten digits appended to its name, higher than those of all earlier nodes of its parent.

**Writes.** ``change`` applies several operations in one transaction: all of them or none. Each may demand a version.
Writes are linear: all processes see them in one order. If the connection breaks during a write, it may have happened
or not, and ``change`` raises ``ConnectionSuspended``; ``read`` tells which.

**Reads.** ``read`` and ``children`` see all writes that ended before they began, by any process. A child that is
deleted or changed while ``children`` reads may be missing or new.

**Watches.** ``watch`` reports what happens at a path and, if recursive, below it. First comes the present state: one
event for each node, or ``DELETED`` if the path has no node. Then comes each change, though several changes of one
node may be reported as one. No change is missed for good: after a gap in the connection, the differences come as
events.

**Sessions.** A process has one session per coordinator. The session ends when the process closes it or dies, or when
the server has not heard of it for ``session_seconds``. All its ephemeral nodes are deleted with it. The state of the
session:

=============  ======================================================  ==============================================
state          when                                                    what a holder of a lock or an office does
=============  ======================================================  ==============================================
``CONNECTED``  the server answers                                      acts
``SUSPENDED``  it has not answered for a third of ``session_seconds``  stops acting, and waits: all may still be held
``LOST``       the session is over, or must be assumed to be           everything is gone; take it again
=============  ======================================================  ==============================================

After ``LOST`` a new session begins as soon as the server answers, and the state is ``CONNECTED`` again. ``close`` ends
the session at once; the state is ``CLOSED`` then.

What each promise is worth when something goes wrong:

- *A process is killed.* Its ephemeral nodes are gone within ``session_seconds``; with files at once.
- *A process pauses* (SIGSTOP, a long garbage collection, a suspended machine) for longer than its session: others hold
  its locks when it wakes up. It notices at its next look at the clock, but code that is already running may act once
  more. Only a fencing token makes that harmless: who guards the resource must refuse a token lower than one it has
  seen. **A lock without fencing is advice.**
- *A connection is cut.* The process knows by its own clock: ``SUSPENDED`` after a third of ``session_seconds`` and
  ``LOST`` not later than the server ends the session.
- *The server dies.* Nothing can be taken or given up until it is back. ZooKeeper forgets nothing. A Redis server that
  lost its data, or a replica that took over without the last writes, may have forgotten nodes; the counter continues
  above all numbers given before, because it follows the server's clock.
- *A clock jumps.* Durations are measured with clocks that don't jump (of the client), or by the server, so a jump on a
  client changes nothing. If the clock of a Redis server jumps forward, sessions may end early; holders hear ``LOST``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Final, Protocol
from urllib.parse import unquote

import msgspec

from uttu.errors import ClusterError, NodeExists, NoNode, NotEmpty, Refused, SessionLost, WrongVersion

MAX_VALUE: Final = 1_000_000
"""Bytes of a value, and of all values in a transaction. By default ZooKeeper refuses requests of 1 MB and more."""
MAX_PATH: Final = 1_000
SESSION_SECONDS: Final = 10.0


class SessionState(StrEnum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node as it was read.

    :param created: its fencing token, see the module.
    :param changed: the number of its last write, from the same counter.
    :param owner: the session that an ephemeral node belongs to; empty for a persistent node.
    :param at: when it was created, in seconds since 1970 by the clock of the server.
    :param written: when its value was last written, by the same clock.
    """

    path: str
    value: bytes
    version: int
    created: int
    changed: int
    owner: str
    at: float
    written: float

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Create(msgspec.Struct, frozen=True):
    """:raises NodeExists: the node exists; a sequential one never does."""

    path: str
    value: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Write(msgspec.Struct, frozen=True):
    """Replace the value of a node.

    :param version: the version that it must have; None for any.
    :raises NoNode: it does not exist.
    :raises WrongVersion: it has another one.
    """

    path: str
    value: bytes
    version: int | None = None


class Delete(msgspec.Struct, frozen=True):
    """:raises NoNode, WrongVersion, NotEmpty: as their names say."""

    path: str
    version: int | None = None


class Check(msgspec.Struct, frozen=True):
    """Demand that a node exists and has a version, without changing it.

    :raises NoNode, WrongVersion: as their names say.
    """

    path: str
    version: int | None = None


Operation = Create | Write | Delete | Check


class ChangeKind(StrEnum):
    PRESENT = "present"
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


class TreeChange(msgspec.Struct, frozen=True):
    """A change that a watch reports. ``node`` is None for a deleted one."""

    kind: ChangeKind
    path: str
    node: Node | None = None


StateListener = Callable[[SessionState], None]
"""Called at every change of the state, in the event loop. Must not block."""


class TreeWatch(Protocol):
    """The changes of a part of the tree, as an asynchronous iterator. It ends with the coordinator."""

    def __aiter__(self) -> TreeWatch: ...

    async def __anext__(self) -> TreeChange: ...


class Coordinator(Protocol):
    """A connection to the tree, with a session. All methods raise ``ClusterUnavailable`` and ``SessionLost``."""

    @property
    def url(self) -> str:
        """As it was given, without passwords."""

    @property
    def session(self) -> str:
        """Identifies the session; the ``owner`` of its ephemeral nodes. It changes after ``LOST``."""

    @property
    def session_seconds(self) -> float: ...

    @property
    def state(self) -> SessionState: ...

    def listen(self, listener: StateListener) -> Callable[[], None]:
        """Call ``listener`` at every change of the state. Returns a function that ends this."""

    async def read(self, path: str) -> Node | None:
        """The node at a path; None if it does not exist."""

    async def children(self, path: str) -> list[Node]:
        """The children of a node by name; none if it does not exist."""

    async def change(self, *operations: Operation) -> Sequence[Node | None]:
        """Apply the operations in one transaction. Returns the node of each; None for one that is deleted.

        :raises ClusterError: the error of the first operation that failed; nothing is changed then.
        """

    def watch(self, path: str, *, recursive: bool = False) -> AbstractAsyncContextManager[TreeWatch]:
        """Watch a path while the block runs, see the module. The node need not exist."""

    async def close(self) -> None:
        """End the session: all its ephemeral nodes are deleted. Can be called twice."""


_WORD: Final = re.compile(r"[^/\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def check_path(path: str) -> str:
    """Return ``path``.

    :raises Refused: it is no path: it does not begin with a slash, ends with one, or has an empty word, a control
        character, ``.`` or ``..``.
    """
    if path == "/":
        return path
    words = path.split("/")
    if words[0] or len(words) < 2 or len(path.encode(errors="replace")) > MAX_PATH:
        raise Refused(f"{path[:80]!r} is not a path: it begins with a slash and has at most {MAX_PATH:,} bytes")
    if words[1] == "zookeeper":
        raise Refused(f"{path[:80]!r} is not a path of Uttu's: ZooKeeper uses it")
    for word in words[1:]:
        if not _WORD.fullmatch(word) or word in (".", ".."):
            raise Refused(f"{path[:80]!r} is not a path: {word!r} is not a name")
    return path


def to_word(name: str) -> str:
    """A name that people give, as one word of a path. :func:`from_word` is the inverse.

    :raises Refused: the name is empty.
    """
    if not name:
        raise Refused("A lock, a group, a member or a leader needs a name")
    return name.replace("%", "%25").replace("/", "%2F") if name not in (".", "..") else name.replace(".", "%2E")


def from_word(word: str) -> str:
    return unquote(word)


# The errors that every technology raises, in the same words.


def no_node(path: str) -> NoNode:
    return NoNode(f"There is no node {path}")


def node_exists(path: str) -> NodeExists:
    return NodeExists(f"{path} exists")


def not_empty(path: str) -> NotEmpty:
    return NotEmpty(f"{path} has children")


def no_children(path: str) -> Refused:
    return Refused(f"{path} is ephemeral, so it can't have children")


def wrong_version(path: str) -> WrongVersion:
    return WrongVersion(f"{path} has another version: somebody else has changed it")


def session_lost(url: str) -> SessionLost:
    return SessionLost(f"The session with {url} ended")


def was_closed(url: str) -> ClusterError:
    return ClusterError(f"The connection to {url} was closed")


def check_operations(operations: Sequence[Operation]) -> None:
    """Check the paths and values of a transaction.

    :raises Refused: a path is not valid, or a value or all values together have more than ``MAX_VALUE`` bytes.
    """
    total = 0
    for operation in operations:
        path = check_path(operation.path)
        if isinstance(operation, Create | Write):
            total += len(operation.value)
            if len(operation.value) > MAX_VALUE:
                size = len(operation.value)
                raise Refused(f"The value for {path} has {size:,} bytes; a node holds at most {MAX_VALUE:,}")
    if total > MAX_VALUE:
        raise Refused(f"The values of a transaction have {total:,} bytes; it takes at most {MAX_VALUE:,}")


def parent_of(path: str) -> str:
    """The path of the parent; ``/`` for a node at the top."""
    return path.rpartition("/")[0] or "/"
