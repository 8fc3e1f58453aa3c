"""Processes that use a private server, and looks at what runs for them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil

from uttu.jobs.embedded import Embedded
from uttu.jobs.embedded.process import send_command
from uttu.testing.waiting import wait_until

_PATIENCE = 30.0

# Holds the server until its standard input is closed.
_USER = """
import sys
from pathlib import Path
from uttu.jobs.embedded import Embedded
Embedded(Path(sys.argv[1])).hold()
exec(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


class User:
    """A process that holds the server of a folder; ``then`` is what it does before it says so."""

    def __init__(self, folder: Path, then: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _USER, str(folder), then], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def held(self) -> str:
        """Wait until it holds the server; returns what it printed before."""
        assert self._process.stdout
        said = ""
        while line := self._process.stdout.readline():
            if line == "held\n":
                return said
            said += line
        raise AssertionError("it does not hold the server")

    def leave(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(_PATIENCE) == 0
        self._process.stdin = None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def held(folder: Path) -> Iterator[User]:
    """A user, from when it holds the server."""
    with User(folder) as user:
        user.held()
        yield user


def told(server: Embedded, command: str) -> str:
    return send_command(server.place.address, command, server.place.password)


def answers(server: Embedded) -> bool:
    with contextlib.suppress(OSError):
        return told(server, "PING") == "+PONG"
    return False


def server_pid(server: Embedded) -> int:
    """The server's process, from its own mouth."""
    return int(told(server, "INFO server").split("process_id:")[1].split()[0])


def keeper_pid(server: Embedded) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(server.place.keeper_lock.read_text())
    return 0


def guard_pid(server: Embedded) -> int:
    """The one child of the keeper that is not the server."""
    with contextlib.suppress(psutil.NoSuchProcess, ValueError):
        for child in psutil.Process(keeper_pid(server)).children():
            if child.name() in ("sh", "dash", "bash"):
                return child.pid
    return 0


def kill(pid: int) -> None:
    """With -9, and wait until it is gone."""
    assert pid > 1
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_gone(pid), f"process {pid} is gone")


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
