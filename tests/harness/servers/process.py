"""A server program in a process of its own, with a private folder that outlives the process but not its maker.

Each server has a guard: a shell that reads from a pipe whose other end only the maker holds. However the
maker ends, kill -9 included, the pipe closes, and the guard kills the server and removes its folder.
Linux could send the server a signal by itself, but when the *thread* ends that started it, which
in a program with an event loop may be long before.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.harness.servers.errors import ServerError

_PATIENCE: Final = 90.0  # a busy machine starts RabbitMQ in half a minute
_LOOK_AGAIN: Final = 0.005
_LAST_WORDS: Final = 2_000

_GUARD: Final = 'read -r pid; read -r never; kill -9 "$pid"; rm -rf "$0"'


class ServerProcess:
    """Starts ``command(folder)``; ``name`` is what errors call it."""

    def __init__(self, name: str, command: Callable[[Path], Sequence[str]]) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix="uttu-server-"))
        self._command = command
        self._server: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """:raises ServerError: it is not running."""
        if self._server is None:
            raise ServerError(f"{self.name} is not running")
        return self._server.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there; one that is paused is."""
        return self._server is not None and self._server.poll() is None

    def log(self) -> str:
        """What it has printed, over all its lives."""
        file = self.folder / "log.txt"
        return file.read_text(errors="replace") if file.exists() else ""

    def start(self, answers: Callable[[], bool]) -> None:
        """Returns when ``answers`` says so.

        :raises ServerError: it ended, or did not come to answer.
        """
        if self.is_running:
            raise ServerError(f"{self.name} is running already")
        self._reap()
        # Sessions of their own: a Ctrl-C at the terminal is for the maker, who may still want the server.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with (self.folder / "log.txt").open("ab") as log:
            self._server = subprocess.Popen(
                self._command(self.folder),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert self._guard.stdin
        self._guard.stdin.write(b"%d\n" % self._server.pid)
        self._guard.stdin.flush()
        self.wait_until(answers, "answer")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """:raises ServerError: it ended, or the time was up."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            if not self.is_running:
                raise ServerError(f"{self.name} ended before it could {what}:\n{self._last_words()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} did not {what} within {_PATIENCE:g} s:\n{self._last_words()}")
            time.sleep(_LOOK_AGAIN)

    def kill(self) -> None:
        """kill -9: it has no time to write anything."""
        if self._server:
            self._server.kill()
        self._reap()

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        if self._server:
            self._server.terminate()
            self._server.send_signal(signal.SIGCONT)
            try:
                self._server.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._server.kill()
        self._reap()

    def pause(self) -> None:
        """Let it stand still as if its machine hung: connections stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)  # a signal takes a moment to arrive

    def resume(self) -> None:
        """Let it go on where it stood still."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _reap(self) -> None:
        # The guard must not outlive the server it is for, whose pid may become another's.
        if self._guard:
            self._guard.kill()
            self._guard.wait()
            assert self._guard.stdin
            self._guard.stdin.close()
            self._guard = None
        if self._server:
            self._server.wait()
            self._server = None

    def _last_words(self) -> str:
        return self.log()[-_LAST_WORDS:]
