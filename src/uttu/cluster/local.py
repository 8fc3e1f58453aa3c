"""A coordinator for the processes of one machine: files, and no server.

::

    FOLDER/cluster.db           the tree, in SQLite
    FOLDER/cluster.sessions/ID  locked by the process that has the session

Tables::

    nodes     path, parent, value, version, created, changed, owner, at, written, sequence
    sessions  id, renewed, seconds, boot
    counter   the last number given

A session ends when its file is no longer locked, which the kernel sees to when a process dies, or when it was not
renewed for its ``session_seconds``, which happens to a process that is stopped. Times of renewal are by a clock that
counts from the start of the machine and never jumps; ``boot`` tells one start from another.

Whoever writes, or looks for changes, ends the sessions that are over. Every process looks for changes ten times a
second (SQLite's ``data_version``, a few microseconds), and at the lock files twice a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote
from uuid import uuid4

import msgspec

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
    ClusterUnavailable,
)
from uttu.file_locks import is_file_locked, lock_file, unlock
from uttu.settings import DATA_FOLDER

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.1
_LOCKS_SECONDS: Final = 0.5
_BUSY_SECONDS: Final = 10.0
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS nodes (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,
    created INTEGER NOT NULL, changed INTEGER NOT NULL, owner TEXT NOT NULL, at REAL NOT NULL, written REAL NOT NULL,
    sequence INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS children ON nodes (parent, path);
CREATE INDEX IF NOT EXISTS owned ON nodes (owner) WHERE owner != '';
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, renewed REAL NOT NULL, seconds REAL NOT NULL, boot TEXT);
CREATE TABLE IF NOT EXISTS counter (last INTEGER NOT NULL);
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);
INSERT OR IGNORE INTO nodes VALUES ('/', '', x'', 0, 0, 0, '', 0, 0, 0);
"""
_COLUMNS: Final = "path, value, version, created, changed, owner, at, written"


class LocalCoordinator(TimedSession):
    """See :class:`uttu.cluster.base.Coordinator`. Open it with :meth:`open`."""

    def __init__(self, folder: Path, session_seconds: float = SESSION_SECONDS) -> None:
        super().__init__(f"local:{folder}", session_seconds, _LOOK_SECONDS)
        self._folder = folder / "cluster.sessions"
        self._file = folder / "cluster.db"
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="uttu-cluster")
        self._boot = _read_boot_id()
        self._db: sqlite3.Connection | None = None
        self._lock = -1
        self._seen = -1
        self._looked = 0.0

    @classmethod
    async def open(cls, folder: Path, session_seconds: float = SESSION_SECONDS) -> LocalCoordinator:
        """Open the tree in a folder, which is created if needed, and begin a session.

        :raises ClusterUnavailable: the folder or its database can't be used.
        """
        coordinator = cls(folder, session_seconds)
        try:
            await coordinator._run(coordinator._connect)
            await coordinator._start()
        except BaseException:
            coordinator._threads.shutdown(wait=False)
            raise
        return coordinator

    async def read(self, path: str) -> Node | None:
        found = await self._run(self._select, "path = ?", check_path(path))
        return found[0] if found else None

    async def children(self, path: str) -> list[Node]:
        return await self._run(self._select, "parent = ?", check_path(path))

    async def change(self, *operations: Operation) -> Sequence[Node | None]:
        check_operations(operations)
        done = await self._run(self._write, operations)
        self._watches.wake(operation.path for operation in operations)
        self._watches.wake(node.path for node in done if node is not None)
        return done

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        if self._states.state == SessionState.CLOSED:
            raise was_closed(self.url)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        except (sqlite3.Error, OSError) as error:
            raise ClusterUnavailable(f"Cannot use {self._file}: {error}") from error

    async def _begin(self) -> None:
        await self._run(self._begin_session)

    async def _look(self) -> None:
        locks = monotonic() - self._looked > _LOCKS_SECONDS
        if await self._run(self._tick, locks):
            self._watches.wake()
        if locks:
            self._looked = monotonic()

    async def _end(self) -> None:
        await self._run(self._end_session)
        self._threads.shutdown(wait=False)

    async def _read_part(self, path: str, recursive: bool) -> list[Node]:
        if not recursive:
            return await self._run(self._select, "path = ?", path)
        prefix = path.rstrip("/")
        # "0" is the character after "/".
        return await self._run(self._select, "path = ? OR (path > ? AND path < ?)", path, f"{prefix}/", f"{prefix}0")

    # From here on, in the thread.

    def _connect(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(self._file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")

    def _begin_session(self) -> None:
        """Begin a session. Its file is locked before others can see it."""
        session, now = uuid4().hex, monotonic()
        lock = lock_file(self._folder / session)
        with self._transaction() as db:
            self._expire(db)
            db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?)", (session, now, self.session_seconds, self._boot))
        former, self.session, self._renewed = self.session, session, now
        if self._lock >= 0:
            unlock(self._lock)
            (self._folder / former).unlink(missing_ok=True)
        self._lock = lock

    def _tick(self, locks: bool) -> bool:
        """Renew the session if that is due; with ``locks``, end those of dead processes. Returns whether to look."""
        assert self._db is not None
        now = monotonic()
        dead = self._find_dead() if locks else []
        if dead or self._is_due:
            with self._transaction() as db:
                _end_sessions(db, dead)
                self._expire(db)
                if not db.execute("UPDATE sessions SET renewed = ? WHERE id = ?", (now, self.session)).rowcount:
                    raise session_lost(self.url)
            self._renewed = now
            for each in dead:
                (self._folder / each).unlink(missing_ok=True)
        [version] = self._db.execute("PRAGMA data_version").fetchone()
        seen, self._seen = self._seen, version
        return bool(dead) or seen != version

    def _end_session(self) -> None:
        if self._db is not None:
            with self._transaction() as db:
                _end_sessions(db, [self.session])
            self._db.close()
            self._db = None
        if self._lock >= 0:
            unlock(self._lock)
            self._lock = -1
        (self._folder / self.session).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        assert self._db is not None
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _write(self, operations: Sequence[Operation]) -> list[Node | None]:
        with self._transaction() as db:
            self._expire(db)
            if not db.execute("SELECT 1 FROM sessions WHERE id = ?", (self.session,)).fetchone():
                raise session_lost(self.url)
            return [self._apply(db, operation) for operation in operations]

    def _select(self, where: str, *values: str) -> list[Node]:
        assert self._db is not None
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM nodes WHERE {where} ORDER BY path", values)
        return [_node(row) for row in rows]

    def _expire(self, db: sqlite3.Connection) -> None:
        """End the sessions that were not renewed in time."""
        now = monotonic()
        rows = db.execute("SELECT id, renewed, seconds, boot FROM sessions").fetchall()
        over = [session for session, renewed, seconds, boot in rows if boot != self._boot or now - renewed > seconds]
        if over:
            _end_sessions(db, over)
            self._seen = -1  # data_version does not tell of changes by the same connection

    def _find_dead(self) -> list[str]:
        """The sessions whose files are not locked: their processes are dead."""
        assert self._db is not None
        sessions = [each for (each,) in self._db.execute("SELECT id FROM sessions WHERE id != ?", (self.session,))]
        return [each for each in sessions if not is_file_locked(self._folder / each)]

    def _apply(self, db: sqlite3.Connection, operation: Operation) -> Node | None:
        match operation:
            case Create():
                return self._create(db, operation)
            case Write(path, value, version):
                node = _expect(db, path, version)
                number, now = _next_number(db), time.time()
                db.execute(
                    "UPDATE nodes SET value = ?, version = version + 1, changed = ?, written = ? WHERE path = ?",
                    (value, number, now, path),
                )
                return _replace(node, value, number, now)
            case Delete(path, version):
                _expect(db, path, version)
                if path == "/" or db.execute("SELECT 1 FROM nodes WHERE parent = ?", (path,)).fetchone():
                    raise not_empty(path)
                db.execute("DELETE FROM nodes WHERE path = ?", (path,))
                _next_number(db)
                return None
            case Check(path, version):
                return _expect(db, path, version)

    def _create(self, db: sqlite3.Connection, operation: Create) -> Node:
        parent = parent_of(operation.path)
        missing = []
        while parent != "/" and (found := _find(db, parent)) is None:
            missing.append(parent)
            parent = parent_of(parent)
        if parent != "/" and found is not None and found.owner:
            raise no_children(parent)
        for path in reversed(missing):
            self._insert(db, path, b"", "")
        path = operation.path
        if operation.sequential:
            path += f"{_next_sequence(db, parent_of(path)):010d}"
        if _find(db, path) is not None or path == "/":
            raise node_exists(path)
        return self._insert(db, path, operation.value, self.session if operation.ephemeral else "")

    def _insert(self, db: sqlite3.Connection, path: str, value: bytes, owner: str) -> Node:
        number, now = _next_number(db), time.time()
        db.execute(
            "INSERT INTO nodes VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, 0)",
            (path, parent_of(path), value, number, number, owner, now, now),
        )
        return Node(path=path, value=value, version=0, created=number, changed=number, owner=owner, at=now, written=now)


async def open_folder(url: str, session_seconds: float = SESSION_SECONDS) -> LocalCoordinator:
    """Open the coordinator of ``local:FOLDER``; the folder of Uttu's data without a name."""
    name = url.partition(":")[2]
    return await LocalCoordinator.open(Path(unquote(name.removeprefix("//")) or DATA_FOLDER), session_seconds)


def _read_boot_id() -> str:
    """Identifies this start of the machine; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _node(row: tuple[Any, ...]) -> Node:
    path, value, version, created, changed, owner, at, written = row
    return Node(
        path=path,
        value=value,
        version=version,
        created=created,
        changed=changed,
        owner=owner,
        at=at,
        written=written,
    )


def _replace(node: Node, value: bytes, number: int, now: float) -> Node:
    return msgspec.structs.replace(node, value=value, version=node.version + 1, changed=number, written=now)


def _find(db: sqlite3.Connection, path: str) -> Node | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM nodes WHERE path = ?", (path,)).fetchone()
    return _node(row) if row else None


def _expect(db: sqlite3.Connection, path: str, version: int | None) -> Node:
    """The node at a path.

    :raises NoNode, WrongVersion: as their names say.
    """
    node = _find(db, path)
    if node is None:
        raise no_node(path)
    if version is not None and node.version != version:
        raise wrong_version(path)
    return node


def _next_number(db: sqlite3.Connection) -> int:
    [number] = db.execute("UPDATE counter SET last = last + 1 RETURNING last").fetchone()
    return int(number)


def _next_sequence(db: sqlite3.Connection, parent: str) -> int:
    row = db.execute("UPDATE nodes SET sequence = sequence + 1 WHERE path = ? RETURNING sequence", (parent,)).fetchone()
    return int(row[0]) - 1


def _end_sessions(db: sqlite3.Connection, sessions: Sequence[str]) -> None:
    for session in sessions:
        if db.execute("DELETE FROM nodes WHERE owner = ?", (session,)).rowcount:
            _next_number(db)
        db.execute("DELETE FROM sessions WHERE id = ?", (session,))
