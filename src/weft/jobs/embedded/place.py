"""Where the private server is, and who holds what. All of it is in ``.weft/jobs/``, which only its owner can enter.

    socket        where the server listens; or, where that path would be too long for a socket:
    port          a port of 127.0.0.1 and the server's password
    server.conf   the server's settings, written anew at each start
    server.pid    the server's process
    server.log    what the server and its keeper said; server.log.1 is what was before
    stopped       there while the server is down because it was told so: those that use it then do not start it again
    data/         the append-only file: what was acknowledged outlives kill -9 of the server, and of all but the last
                  second or two is on the disk if the machine dies

    users.lock    shared: held by each process that uses the server, until that process ends
                  alone: held by the keeper while it stops the server for want of users; who comes then waits
    keeper.lock   alone: held by the keeper as long as it lives, and its pid is in it. Who finds it free starts a
                  keeper and hands the lock to it, so of many that start at once one does
    server.lock   alone: held by the server process itself, which knows nothing of it

So three kinds of processes stand in for one another. The keeper watches server and users: it starts a server that died,
and stops it when the last user is gone. A guard, a shell that does nothing but wait, starts a new keeper when the
keeper is killed; that one adopts the server, and users notice nothing. If all are killed, the next user starts it all.

Rejected: counting users in the server by their connections, as a process between two connections would not count, and
a signal from the kernel at the parent's death, which only Linux has and which would stop a server that is in use.
"""

from __future__ import annotations

import os
import random
import secrets
from pathlib import Path
from typing import Final
from urllib.parse import quote

from weft.drivers.ports import is_free

Address = str | tuple[str, int]

# A socket's path has to fit into 104 bytes on macOS and the BSDs, 108 on Linux, its end marked by a zero.
_LONGEST: Final = 103
# Below the ports that systems hand to outgoing connections, which could take it while the server is down.
_PORTS: Final = range(12_000, 22_000)


class Place:
    """The files of one private server, below the folder that Weft is run in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve() / ".weft" / "jobs"
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

    def make(self) -> None:
        """:raises OSError: it can't be made or written."""
        self.folder.parent.mkdir(exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if self.folder.stat().st_mode & 0o077:  # made by somebody else, before there was a server in it
            self.folder.chmod(0o700)
        self.data.mkdir(mode=0o700, exist_ok=True)

    @property
    def has_socket(self) -> bool:
        return len(os.fsencode(self.socket)) <= _LONGEST

    @property
    def address(self) -> Address:
        """Where it listens. A port is chosen when it is first asked for, and is the same from then on."""
        return str(self.socket) if self.has_socket else ("127.0.0.1", self._port()[0])

    @property
    def password(self) -> str:
        return "" if self.has_socket else self._port()[1]

    @property
    def url(self) -> str:
        """As Celery takes it."""
        if self.has_socket:
            return f"redis+socket://{quote(os.fsencode(self.socket))}?virtual_host=0"
        port, password = self._port()
        return f"redis://:{password}@127.0.0.1:{port}/0"

    def choose_port(self) -> None:
        """Choose one, where there is none yet or another program listens there."""
        if self.has_socket or (self.port.exists() and is_free(self._port()[0])):
            return
        self.port.unlink(missing_ok=True)
        self._port()

    def _port(self) -> tuple[int, str]:
        if not self.port.exists():
            self.make()
            port = next(port for port in iter(lambda: random.choice(_PORTS), 0) if is_free(port))
            draft = self.folder / f"port.{secrets.token_hex(8)}"
            draft.touch(0o600)
            draft.write_text(f"{port} {secrets.token_urlsafe(32)}\n")
            # Of several that choose at once, the first has chosen for all.
            try:
                os.link(draft, self.port)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        port_word, password = self.port.read_text().split()
        return int(port_word), password
