"""Using the private server: whoever does starts it if need be, and keeps it running by being alive."""

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

from weft.errors import BusUnavailable, StoreError
from weft.jobs.embedded import locks
from weft.jobs.embedded.asking import ask
from weft.jobs.embedded.place import Place
from weft.jobs.embedded.programs import server_program
from weft.jobs.embedded.server import Server

_PATIENCE: Final = 30.0
_LOOK_AGAIN: Final = 0.01
_LAST_WORDS: Final = 1_500
_LARGEST_LOG: Final = 1_000_000


class Embedded:
    """The private server of a folder: its files are in ``folder/.weft/jobs``. Making this object does nothing yet.

    All processes of the folder share the server. It runs from the first :meth:`hold` until the last process that
    called it has ended, however that happens, or until :meth:`down`. What it keeps is on disk and is there again
    when it is next started.
    """

    def __init__(self, folder: Path = Path()) -> None:
        self.place = Place(folder)
        self._lock = -1

    @property
    def url(self) -> str:
        """Its address, as Celery takes it; for this the server need not run.

        Where the folder's path is too long for a socket, this holds a password, and a port that is free as long as
        the server does not run. If another program takes it then, the address changes.

        :raises StoreError: a port had to be chosen, and can't be written down.
        """
        with self._writing():
            if not self.place.has_socket:
                self.place.make()
                # While nobody starts a server, which would be taken for another program.
                if (lock := locks.take(self.place.keeper_lock)) is not None:
                    try:
                        self._choose_port()
                    finally:
                        os.close(lock)
            return self.place.url

    @property
    def is_running(self) -> bool:
        """Whether the server's process is there."""
        return locks.is_taken(self.place.server_lock)

    @property
    def was_stopped(self) -> bool:
        """Whether :meth:`down` stopped it, and nobody has started it since."""
        return self.place.stopped.exists()

    def hold(self) -> None:
        """Have the server running for as long as this process lives; returns when it answers.

        Again costs little, and starts a server that is gone, but not one that was stopped by :meth:`down`: that is
        left to processes that come after. Children made by fork hold it, too; other programs that this process
        starts do not.

        :raises StoreError: its files can't be written.
        :raises ConfigError: there is no program to start.
        :raises BusUnavailable: it does not come up.
        """
        with self._writing():
            joined = locks.is_of(self._lock, self.place.users_lock)
            if joined and (self.was_stopped or self._answer() == "+PONG"):
                return
            deadline = time.monotonic() + _PATIENCE
            self.place.make()
            if not joined:
                self._lock = self._join(deadline)
            try:
                self._bring_up(deadline)
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """Stop using it before this process ends; again does no harm."""
        if locks.is_of(self._lock, self.place.users_lock):
            os.close(self._lock)
        self._lock = -1

    def down(self) -> bool:
        """Stop the server, whoever uses it; says whether it ran. Its data stays.

        :raises StoreError: its files can't be read, or it belongs to another user of this machine.
        :raises BusUnavailable: it does not end.
        """
        ran = False
        deadline = time.monotonic() + 2 * _PATIENCE
        with self._writing():
            while locks.is_taken(self.place.keeper_lock):
                ran = True
                self.place.stopped.touch()
                with contextlib.suppress(ProcessLookupError, ValueError):  # it ended, or has yet to write its pid
                    os.kill(int(self.place.keeper_lock.read_text()), signal.SIGTERM)
                if time.monotonic() > deadline:
                    raise BusUnavailable(self._failure("does not end"))
                time.sleep(_LOOK_AGAIN)
            if self.is_running:  # without a keeper
                ran = True
                self.place.stopped.touch()
                Server(self.place, "").stop()
        return ran

    def users(self) -> int:
        """How many connections it has now, 0 if it does not answer."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            told = ask(self.place.address, "INFO clients", self.place.password)
            return int(told.split("connected_clients:")[1].split()[0]) - 1
        return 0

    def _join(self, deadline: float) -> int:
        """Become a user. That has to wait while a keeper stops the server."""
        while (lock := locks.take(self.place.users_lock, shared=True)) is None:
            if time.monotonic() > deadline:
                raise BusUnavailable(
                    f"the jobs' server in {self.place.folder} is being stopped and does not end: see {self.place.log}"
                )
            time.sleep(_LOOK_AGAIN)
        return lock

    def _bring_up(self, deadline: float) -> None:
        started = False
        while True:
            if (lock := locks.take(self.place.keeper_lock)) is not None:
                try:
                    if started:
                        raise BusUnavailable(self._failure("ended as soon as it was started"))
                    self._start_keeper(lock)
                finally:
                    os.close(lock)
                started = True
            match self._answer():
                case "+PONG":
                    return
                case loading if loading.startswith("-LOADING"):
                    deadline = time.monotonic() + _PATIENCE
            if time.monotonic() > deadline:
                raise BusUnavailable(self._failure(f"does not answer since {_PATIENCE:g} s"))
            time.sleep(_LOOK_AGAIN)

    def _choose_port(self) -> None:
        if not self.is_running:
            self.place.choose_port()

    def _start_keeper(self, lock: int) -> None:
        # The pid of the keeper before; by now it may be another's.
        os.truncate(lock, 0)
        program = server_program()
        self.place.stopped.unlink(missing_ok=True)
        self._choose_port()
        if not self.is_running:
            with contextlib.suppress(FileNotFoundError):
                if self.place.log.stat().st_size > _LARGEST_LOG:
                    self.place.log.rename(self.place.log.with_suffix(".log.1"))
        folder = self.place.folder.parent.parent
        # -P: the folder it is run in must not hide Python's own modules, or ours.
        command = [sys.executable, "-P", "-m", "weft.jobs.embedded.keeper", str(folder), program, str(lock)]
        with self.place.log.open("ab") as log:
            # A session of its own: a Ctrl-C at the terminal is for this process alone.
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
            raise BusUnavailable(self._failure("has no keeper, which failed to start"))

    def _answer(self) -> str:
        try:
            return ask(self.place.address, "PING", self.place.password)
        except OSError:
            return ""

    def _failure(self, what: str) -> str:
        said = ""
        with contextlib.suppress(OSError):
            said = self.place.log.read_text(errors="replace")[-_LAST_WORDS:].strip()
        return f"the jobs' server in {self.place.folder} {what}; its log, {self.place.log}, ends with:\n{said}"

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"the jobs' server can't be kept in {self.place.folder}: {error.strerror or error}: run Weft where "
                "you can write, or set a broker with [jobs] broker in weft.toml"
            ) from error
