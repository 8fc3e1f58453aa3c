"""The files of the embedded server, and the file locks that show which processes are alive.

The kernel releases a lock when the last process with that open file ends, even after kill -9, so no lock is ever stale.
A lock belongs to the open file, not to the process: a child made by fork shares it, and a program that inherits the
descriptor keeps holding it. Lock files are never removed.

All files are in ``.uttu/jobs/``, which only its owner can enter.

    socket        the server's socket; if that path would be too long for a socket:
    port          a port of 127.0.0.1 and the server's password
    server.conf   the server's settings, rewritten at each start
    server.pid    the server's process id
    server.log    the log of the server and its monitor; server.log.1 is the previous one
    stopped       exists after ``uttu down`` stopped the server: processes that use it then do not restart it
    data/         the append-only file: acknowledged writes survive kill -9 of the server; if the machine dies, the
                  last second or two may be lost

    users.lock    shared: held by each process that uses the server, until that process ends
                  exclusive: held by the monitor while it stops an idle server; new users wait
    keeper.lock   exclusive: held by the monitor while it lives, and contains its pid. A process that finds it free
                  starts a monitor and passes the lock to it, so only one of many concurrent starts succeeds
    server.lock   exclusive: held by the server process, which inherits the descriptor without knowing it
    up.lock       shared: held by each ``uttu up`` until its processes have ended; ``uttu down`` waits for that

Three kinds of processes replace one another. The monitor watches server and users: it restarts a dead server, and stops
it when the last user is gone. A guard, a shell that only waits, starts a new monitor when the monitor is killed; that
one adopts the server, and users notice nothing. If all are killed, the next user starts everything.

Rejected: counting users by their connections, because a process between two connections would not count; and a signal
from the kernel at the parent's death, which only Linux has and which would stop a server that is in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import secrets
from pathlib import Path
from typing import Final
from urllib.parse import quote

from uttu.clients.addresses import is_port_free


def take_lock(file: Path, *, shared: bool = False) -> int | None:
    """Take a lock; return the descriptor that holds it, or None if another process holds a conflicting lock.

    :raises OSError: the file cannot be created or opened.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(file: Path) -> bool:
    """Whether a process holds the lock exclusively."""
    if not file.exists():
        return False
    if (descriptor := take_lock(file, shared=True)) is None:
        return True
    os.close(descriptor)
    return False


def is_lock_of(descriptor: int, file: Path) -> bool:
    """Whether the descriptor is open and refers to the file at this path."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), file.stat())
    return False


SocketAddress = str | tuple[str, int]

# Maximum length of a socket's path: 104 bytes on macOS and the BSDs, 108 on Linux, including a final zero byte.
_MAX_SOCKET_PATH: Final = 103
# Below the range for outgoing connections, which could take the port while the server is down.
_PORTS: Final = range(12_000, 22_000)


class EmbeddedPaths:
    """The files of one embedded server, below the folder that Uttu runs in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve() / ".uttu" / "jobs"
        self.socket = self.folder / "socket"
        self.port = self.folder / "port"
        self.conf = self.folder / "server.conf"
        self.pid = self.folder / "server.pid"
        self.log = self.folder / "server.log"
        self.stopped = self.folder / "stopped"
        self.data = self.folder / "data"
        self.users_lock = self.folder / "users.lock"
        self.keeper_lock = self.folder / "keeper.lock"
        self.server_lock = self.folder / "server.lock"
        self.up_lock = self.folder / "up.lock"

    def make(self) -> None:
        """Create the folders.

        :raises OSError: they cannot be created or written.
        """
        self.folder.parent.mkdir(exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if self.folder.stat().st_mode & 0o077:  # created by another program, before a server was in it
            self.folder.chmod(0o700)
        self.data.mkdir(mode=0o700, exist_ok=True)

    @property
    def has_socket(self) -> bool:
        return len(os.fsencode(self.socket)) <= _MAX_SOCKET_PATH

    @property
    def address(self) -> SocketAddress:
        """The address it listens on. A port is chosen at the first access and then stays the same."""
        return str(self.socket) if self.has_socket else ("127.0.0.1", self._port()[0])

    @property
    def password(self) -> str:
        return "" if self.has_socket else self._port()[1]

    @property
    def url(self) -> str:
        """The URL in Celery's form."""
        if self.has_socket:
            return f"redis+socket://{quote(os.fsencode(self.socket))}?virtual_host=0"
        port, password = self._port()
        return f"redis://:{password}@127.0.0.1:{port}/0"

    def choose_port(self) -> None:
        """Choose a port if none was chosen yet, or if another program listens on it."""
        if self.has_socket or (self.port.exists() and is_port_free(self._port()[0])):
            return
        self.port.unlink(missing_ok=True)
        self._port()

    def _port(self) -> tuple[int, str]:
        if not self.port.exists():
            self.make()
            port = next(port for port in iter(lambda: random.choice(_PORTS), 0) if is_port_free(port))
            draft = self.folder / f"port.{secrets.token_hex(8)}"
            draft.touch(0o600)
            draft.write_text(f"{port} {secrets.token_urlsafe(32)}\n")
            # If several processes choose at once, the first link wins for all.
            try:
                os.link(draft, self.port)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        port_word, password = self.port.read_text().split()
        return int(port_word), password
