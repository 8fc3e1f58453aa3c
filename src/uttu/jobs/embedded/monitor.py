"""The monitor: a process that starts the server, restarts it if it dies, and stops it after its last user.

    python -m uttu.jobs.embedded.monitor FOLDER PROGRAM [DESCRIPTOR]

FOLDER contains ``.uttu``, PROGRAM is the server's executable, DESCRIPTOR is an open file that holds ``keeper.lock``.
Without DESCRIPTOR the monitor takes the lock itself, or ends at once if another monitor has it. It writes to the
server's log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from uttu.jobs.embedded import paths
from uttu.jobs.embedded.paths import EmbeddedPaths
from uttu.jobs.embedded.process import EmbeddedProcess

_POLL_SECONDS: Final = 0.1
# Stop the server after this time without users. Commands often follow one another.
_GRACE_SECONDS: Final = 1.0
# Give up after this many deaths in a row, each within _SHORT_LIFE_SECONDS of a start.
_MAX_DEATHS: Final = 3
_SHORT_LIFE_SECONDS: Final = 5.0

# Waits for a line from the monitor, or for its death, which closes the pipe and starts a new monitor.
_GUARD_SCRIPT: Final = 'read -r word || exec "$@"'


class ServerMonitor:
    """Runs in the monitor process. ``lock`` is the descriptor that holds ``keeper.lock``."""

    def __init__(self, place: EmbeddedPaths, server: EmbeddedProcess, lock: int, guard: list[str]) -> None:
        self._paths = place
        self._server = server
        self._lock = lock
        self._guard_command = ["/bin/sh", "-c", _GUARD_SCRIPT, "sh", *guard]
        self._guard: subprocess.Popen[bytes] | None = None
        self._is_stopping = False
        self._started = 0.0
        self._deaths = 0
        self._idle_since: float | None = None
        self._users: int | None = None

    def run(self) -> int:
        """Run until the server is idle or a signal comes; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request_stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            return self._watch()
        finally:
            self._end_guard()

    def _request_stop(self, *_: object) -> None:
        self._is_stopping = True

    def _watch(self) -> int:
        while not self._is_stopping:
            try:
                if self._is_idle():
                    break
            except FileNotFoundError:
                return self._abandon()
            if not paths.is_lock_of(self._lock, self._paths.keeper_lock):
                return self._abandon()
            if not self._server.is_running() and not self._start():
                return 1
            self._ensure_guard()
            time.sleep(_POLL_SECONDS)
        _log_line("Stopping the server: " + ("on request" if self._is_stopping else "it has no users"))
        self._server.stop()
        return 0

    def _abandon(self) -> int:
        """Kill the server: its files were removed, so no process can find it, and a new server may be in its place."""
        self._server.kill()
        return 0

    def _start(self) -> bool:
        short = time.monotonic() - self._started < _SHORT_LIFE_SECONDS
        self._deaths = self._deaths + 1 if short and self._started else 0
        if self._deaths == _MAX_DEATHS:
            _log_line(f"The server died {self._deaths} times in a row. Giving up")
            return False
        if self._started:
            _log_line("The server died. Starting it again")
        self._started = time.monotonic()
        try:
            self._server.start()
        except OSError as error:
            _log_line(f"Cannot start the server: {error}")
            return False
        return True

    def _is_idle(self) -> bool:
        """Whether the server had no users for ``_GRACE_SECONDS``.

        If so, this process keeps ``users.lock``, and the next user waits until the monitor has ended.
        """
        users = paths.take_lock(self._paths.users_lock)
        if users is None:
            self._idle_since = None
            return False
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since >= _GRACE_SECONDS:
            self._users = users
            return True
        os.close(users)
        return False

    def _ensure_guard(self) -> None:
        if self._guard is not None and self._guard.poll() is None:
            return
        self._end_guard()
        self._guard = subprocess.Popen(self._guard_command, stdin=subprocess.PIPE, start_new_session=True)

    def _end_guard(self) -> None:
        if self._guard is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.communicate(b"done\n")
            self._guard = None


def _log_line(text: str) -> None:
    print(f"{os.getpid()}:K {time.strftime('%d %b %Y %H:%M:%S')} # uttu: {text}", file=sys.stderr, flush=True)


def main(folder: str, program: str, descriptor: str = "") -> int:
    # Detach: the monitor must not be a child of the process that starts it, because it may outlive that process.
    if os.fork():
        os._exit(0)
    place = EmbeddedPaths(Path(folder))
    lock = int(descriptor) if descriptor else paths.take_lock(place.keeper_lock)
    if lock is None:
        return 0
    os.set_inheritable(lock, False)
    os.truncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    guard = [sys.executable, "-P", "-m", "uttu.jobs.embedded.monitor", folder, program]
    return ServerMonitor(place, EmbeddedProcess(place, program), lock, guard).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
