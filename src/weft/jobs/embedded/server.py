"""The server's process, as its keeper sees it: started by this keeper, or by one before it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from weft.jobs.embedded import locks
from weft.jobs.embedded.place import Place

_PATIENCE: Final = 20.0
_LOOK_AGAIN: Final = 0.01


class Server:
    """Started, watched and stopped through its lock, so that whose child it is makes no difference."""

    def __init__(self, place: Place, program: str) -> None:
        self._place = place
        self._program = program
        self._child: subprocess.Popen[bytes] | None = None
        self._adopted = _pid_in(place.pid) if self.is_running() else 0

    def is_running(self) -> bool:
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        return locks.is_taken(self._place.server_lock)

    def start(self) -> None:
        """Start it, unless it is running.

        :raises OSError: that can't be done.
        """
        lock = locks.take(self._place.server_lock)
        if lock is None:
            return
        self._adopted = 0
        try:
            self._configure()
            self._child = subprocess.Popen(
                [self._program, str(self._place.conf)],
                stdin=subprocess.DEVNULL,
                pass_fds=[lock],
                start_new_session=True,
            )
        finally:
            os.close(lock)

    def stop(self) -> None:
        """Let it write what it has and end; if it does not, kill it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._signal(number)
            deadline = time.monotonic() + _PATIENCE
            while self.is_running():
                if time.monotonic() > deadline:
                    break
                time.sleep(_LOOK_AGAIN)
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

    def _configure(self) -> None:
        place = self._place
        settings = {
            "dir": _quoted(place.data),
            "pidfile": _quoted(place.pid),
            "daemonize": "no",
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "everysec",
            # Plain commands, which Redis and Valkey of all versions read from one another.
            "aof-use-rdb-preamble": "no",
            "maxmemory-policy": "noeviction",
        }
        if place.has_socket:
            settings |= {"port": "0", "unixsocket": _quoted(place.socket), "unixsocketperm": "700"}
        else:
            settings |= {"bind": "127.0.0.1", "port": str(place.address[1]), "requirepass": place.password}
        for file in (place.conf, place.pid):
            file.unlink(missing_ok=True)
        place.conf.touch(0o600)
        place.conf.write_bytes(os.fsencode("".join(f"{name} {value}\n" for name, value in settings.items())))


def _pid_in(file: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return 0


def _quoted(path: Path) -> str:
    """As a value in the server's file of settings, whose strings are those of JSON."""
    return json.dumps(str(path), ensure_ascii=False)
