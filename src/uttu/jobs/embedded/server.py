"""Use the embedded server: a user starts it if needed, and keeps it running while the user's process lives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from uttu import former
from uttu.errors import BusUnavailable, StoreError
from uttu.jobs.embedded import paths
from uttu.jobs.embedded.paths import EmbeddedPaths
from uttu.jobs.embedded.process import EmbeddedProcess, find_program, send_command

_START_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.01
_LOG_EXCERPT_BYTES: Final = 1_500
# Longer than ``uttu up`` gives its processes to end.
_LEADER_SECONDS: Final = 15.0
_MAX_LOG_BYTES: Final = 1_000_000


class Embedded:
    """The embedded server of a folder; its files are in ``folder/.uttu/jobs``. The constructor starts nothing.

    All processes of the folder share the server. It runs from the first :meth:`hold` until the last process that called
    it has ended, in whatever way, or until :meth:`down`. Its data is on disk and survives restarts.
    """

    def __init__(self, folder: Path = Path()) -> None:
        self.place = EmbeddedPaths(folder)
        self._lock = -1

    @property
    def url(self) -> str:
        """Its address in Celery's form; the server need not run.

        If the folder's path is too long for a socket, the address has a password and a port. While the server is down
        another program may take that port; then the address changes.

        :raises StoreError: a port had to be chosen and cannot be saved.
        """
        former.check_folder(self.place.folder.parent)
        with self._map_errors():
            if not self.place.has_socket:
                self.place.make()
                # Only while no process starts a server, which would look like another program on the port.
                if (lock := paths.take_lock(self.place.keeper_lock)) is not None:
                    try:
                        self._choose_port()
                    finally:
                        os.close(lock)
            return self.place.url

    @property
    def is_running(self) -> bool:
        """Whether the server process is running."""
        return paths.is_locked(self.place.server_lock)

    @property
    def was_stopped(self) -> bool:
        """Whether :meth:`down` stopped it and it was not started since."""
        return self.place.stopped.exists()

    def hold(self) -> None:
        """Keep the server running while this process lives; return when it answers.

        Later calls are cheap. They restart a dead server, but not one that was stopped by :meth:`down`: only a new
        process does that. Children made by fork hold it too; other programs that this process starts do not.

        :raises StoreError: its files cannot be written.
        :raises ConfigError: no server program was found.
        :raises BusUnavailable: it does not start.
        """
        former.check_folder(self.place.folder.parent)
        with self._map_errors():
            joined = paths.is_lock_of(self._lock, self.place.users_lock)
            if joined and (self.was_stopped or self._ping() == "+PONG"):
                return
            deadline = time.monotonic() + _START_SECONDS
            self.place.make()
            if not joined:
                self._lock = self._join(deadline)
            try:
                self._start(deadline)
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """Stop using it before this process ends. Calling it twice is safe."""
        if paths.is_lock_of(self._lock, self.place.users_lock):
            os.close(self._lock)
        self._lock = -1

    def lead(self) -> int:
        """Declare that this process ends its children once ``stopped`` exists; for ``uttu up``.

        Return the descriptor of the lock, to be closed when they have ended.

        :raises StoreError: the lock cannot be created.
        """
        with self._map_errors():
            # Left behind by an interrupted ``uttu down``.
            self.place.stopped.unlink(missing_ok=True)
            return paths.take_lock(self.place.up_lock, shared=True) or -1

    def _end_commands(self) -> None:
        """Let each ``uttu up`` end its processes while the server still runs, so that none reports errors."""
        deadline = time.monotonic() + _LEADER_SECONDS
        while self.place.up_lock.exists() and self.is_running and time.monotonic() < deadline:
            if (lock := paths.take_lock(self.place.up_lock)) is not None:
                os.close(lock)
                return
            self.place.stopped.touch()
            time.sleep(_POLL_SECONDS)

    def down(self) -> bool:
        """Stop the server, even if it is in use; return whether it ran. Its data stays.

        :raises StoreError: its files cannot be read, or it belongs to another user of this machine.
        :raises BusUnavailable: it does not end.
        """
        ran = False
        deadline = time.monotonic() + 2 * _START_SECONDS
        with self._map_errors():
            ran = self.is_running
            self._end_commands()
            while paths.is_locked(self.place.keeper_lock):
                ran = True
                self.place.stopped.touch()
                with contextlib.suppress(ProcessLookupError, ValueError):  # it ended, or has not written its pid yet
                    os.kill(int(self.place.keeper_lock.read_text()), signal.SIGTERM)
                if time.monotonic() > deadline:
                    raise BusUnavailable(self._failure("does not end"))
                time.sleep(_POLL_SECONDS)
            if self.is_running:  # without a monitor
                ran = True
                self.place.stopped.touch()
                EmbeddedProcess(self.place, "").stop()
        return ran

    def users(self) -> int:
        """Return the number of its connections now; 0 if it does not answer."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            info = send_command(self.place.address, "INFO clients", self.place.password)
            return int(info.split("connected_clients:")[1].split()[0]) - 1
        return 0

    def _join(self, deadline: float) -> int:
        """Take ``users.lock``, waiting while a monitor stops the server."""
        while (lock := paths.take_lock(self.place.users_lock, shared=True)) is None:
            if time.monotonic() > deadline:
                raise BusUnavailable(
                    f"The embedded server in {self.place.folder} is stopping and does not end. See {self.place.log}"
                )
            time.sleep(_POLL_SECONDS)
        return lock

    def _start(self, deadline: float) -> None:
        started = False
        while True:
            if (lock := paths.take_lock(self.place.keeper_lock)) is not None:
                try:
                    if started:
                        raise BusUnavailable(self._failure("ended right after its start"))
                    self._start_monitor(lock)
                finally:
                    os.close(lock)
                started = True
            match self._ping():
                case "+PONG":
                    return
                case loading if loading.startswith("-LOADING"):
                    deadline = time.monotonic() + _START_SECONDS
            if time.monotonic() > deadline:
                raise BusUnavailable(self._failure(f"did not answer for {_START_SECONDS:g} s"))
            time.sleep(_POLL_SECONDS)

    def _choose_port(self) -> None:
        if not self.is_running:
            self.place.choose_port()

    def _start_monitor(self, lock: int) -> None:
        # Remove the pid of the former monitor, which may belong to another process by now.
        os.truncate(lock, 0)
        program = find_program()
        self.place.stopped.unlink(missing_ok=True)
        self._choose_port()
        if not self.is_running:
            with contextlib.suppress(FileNotFoundError):
                if self.place.log.stat().st_size > _MAX_LOG_BYTES:
                    self.place.log.rename(self.place.log.with_suffix(".log.1"))
        folder = self.place.folder.parent.parent
        # -P: modules in the current folder must not shadow Python's or ours.
        command = [sys.executable, "-P", "-m", "uttu.jobs.embedded.monitor", str(folder), program, str(lock)]
        with self.place.log.open("ab") as log:
            # In a new session: Ctrl-C at the terminal must not reach the monitor.
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock],
                start_new_session=True,
                check=False,
            )
        if done.returncode:
            raise BusUnavailable(self._failure("has no monitor, because it failed to start"))

    def _ping(self) -> str:
        try:
            return send_command(self.place.address, "PING", self.place.password)
        except OSError:
            return ""

    def _failure(self, what: str) -> str:
        excerpt = ""
        with contextlib.suppress(OSError):
            excerpt = self.place.log.read_text(errors="replace")[-_LOG_EXCERPT_BYTES:].strip()
        return f"The embedded server in {self.place.folder} {what}. Its log {self.place.log} ends with:\n{excerpt}"

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"Cannot keep the embedded server in {self.place.folder}: {error.strerror or error}. Run Uttu in a "
                "folder that you can write, or set a broker with [jobs] broker in uttu.toml"
            ) from error
