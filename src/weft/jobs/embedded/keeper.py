"""The keeper: a process that starts the server, starts it again if it dies, and stops it when its last user is gone.

    python -m weft.jobs.embedded.keeper FOLDER PROGRAM [DESCRIPTOR]

FOLDER is the one that holds ``.weft``, PROGRAM the server's, DESCRIPTOR an open file that holds ``keeper.lock``;
without it the keeper takes the lock itself, or ends at once if there is another. What it says goes to the server's log.
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

from weft.jobs.embedded import locks
from weft.jobs.embedded.place import Place
from weft.jobs.embedded.server import Server

_LOOK_SECONDS: Final = 0.1
# For so long nobody must have used the server. One command often follows another.
_GRACE_SECONDS: Final = 1.0
# A server that dies so often, so soon after its start, does not die by chance.
_MOST_DEATHS: Final = 3
_SHORT_LIFE_SECONDS: Final = 5.0

# Waits for the keeper: for a word from it, or for its death, which closes the pipe.
_GUARD: Final = 'read -r word || exec "$@"'


class Keeper:
    """``lock``: the descriptor that holds ``keeper.lock``."""

    def __init__(self, place: Place, server: Server, lock: int, guard: list[str]) -> None:
        self._place = place
        self._server = server
        self._lock = lock
        self._guard_command = ["/bin/sh", "-c", _GUARD, "sh", *guard]
        self._guard: subprocess.Popen[bytes] | None = None
        self._told = False
        self._began = 0.0
        self._deaths = 0
        self._idle_since: float | None = None
        self._users: int | None = None

    def run(self) -> int:
        """Returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._tell)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            return self._keep()
        finally:
            self._dismiss()

    def _tell(self, *_: object) -> None:
        self._told = True

    def _keep(self) -> int:
        while not self._told:
            try:
                if self._is_idle():
                    break
            except FileNotFoundError:
                return self._forsake()
            if not locks.is_of(self._lock, self._place.keeper_lock):
                return self._forsake()
            if not self._server.is_running() and not self._start():
                return 1
            self._watch_guard()
            time.sleep(_LOOK_SECONDS)
        _say("the server is stopped: " + ("asked to" if self._told else "nobody uses it"))
        self._server.stop()
        return 0

    def _forsake(self) -> int:
        """Its files were removed: nobody will find this server again, and there may be a new one in its place."""
        self._server.kill()
        return 0

    def _start(self) -> bool:
        short = time.monotonic() - self._began < _SHORT_LIFE_SECONDS
        self._deaths = self._deaths + 1 if short and self._began else 0
        if self._deaths == _MOST_DEATHS:
            _say(f"the server died {self._deaths} times in a row")
            return False
        if self._began:
            _say("the server died; it is started again")
        self._began = time.monotonic()
        try:
            self._server.start()
        except OSError as error:
            _say(f"the server can't be started: {error}")
            return False
        return True

    def _is_idle(self) -> bool:
        """Whether there were no users for a while. If so, the next waits until this keeper is gone."""
        users = locks.take(self._place.users_lock)
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

    def _watch_guard(self) -> None:
        if self._guard is not None and self._guard.poll() is None:
            return
        self._dismiss()
        self._guard = subprocess.Popen(self._guard_command, stdin=subprocess.PIPE, start_new_session=True)

    def _dismiss(self) -> None:
        if self._guard is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.communicate(b"done\n")
            self._guard = None


def _say(text: str) -> None:
    print(f"{os.getpid()}:K {time.strftime('%d %b %Y %H:%M:%S')} # weft: {text}", file=sys.stderr, flush=True)


def main(folder: str, program: str, descriptor: str = "") -> int:
    # Whoever starts it does not want a child: it may live longer, and outlive it.
    if os.fork():
        os._exit(0)
    place = Place(Path(folder))
    lock = int(descriptor) if descriptor else locks.take(place.keeper_lock)
    if lock is None:
        return 0
    os.set_inheritable(lock, False)
    os.truncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    guard = [sys.executable, "-P", "-m", "weft.jobs.embedded.keeper", folder, program]
    return Keeper(place, Server(place, program), lock, guard).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
