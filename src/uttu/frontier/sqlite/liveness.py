"""File locks that show which workers of this machine are alive.

Every worker holds a lock on its own file while it lives. The kernel releases the lock when the process ends, even after
kill -9. If the lock can be taken, the worker is dead, and its leases need not wait for their deadline.

``claim``, ``gone`` and ``forget`` run inside a write transaction, which only one process has at a time. So no process
checks a lock file while another creates or removes it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from uttu.errors import StoreError

_held: Final[set[int]] = set()


def lock_file(path: Path) -> int:
    """Open the file, creating it if needed, and lock it. Closing the returned descriptor releases the lock.

    :raises BlockingIOError: another process holds the lock.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(file)
        raise
    _held.add(file)
    return file


def unlock(file: int) -> None:
    """Close a descriptor of :func:`lock_file`."""
    _held.discard(file)
    os.close(file)


def _let_go() -> None:
    """Drop the inherited locks in a forked child.

    The descriptors are redirected to /dev/null, not closed: code in the child may still close them.
    """
    if _held:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for file in _held:
            os.dup2(nothing, file, inheritable=False)
        os.close(nothing)
        _held.clear()


os.register_at_fork(after_in_child=_let_go)


def is_file_locked(path: Path) -> bool:
    """Whether a live process holds the lock; False if the file does not exist."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, so that two concurrent checks do not see each other as owners.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


class Liveness:
    """The lock files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: dict[str, int] = {}

    def claim(self, worker: str) -> None:
        """Hold the lock of ``worker`` until :meth:`release` or the end of the process.

        :raises StoreError: a live worker already has this name.
        """
        if worker in self._own:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            file = lock_file(self._path(worker))
        except BlockingIOError as error:
            raise StoreError(
                f"A worker named {worker!r} already works on this crawl. Give each worker its own name"
            ) from error
        self._own[worker] = file

    def alive(self, worker: str) -> bool:
        """Whether a live process, this one or another, has claimed ``worker``."""
        return worker in self._own or is_file_locked(self._path(worker))

    def gone(self) -> list[str]:
        """Return the workers that claimed once and are dead now, until they are forgotten."""
        try:
            names = [unquote(name) for name in os.listdir(self._folder)]
        except FileNotFoundError:
            return []
        return [name for name in names if name not in self._own and not is_file_locked(self._path(name))]

    def forget(self, workers: list[str]) -> None:
        """Remove the lock files of these workers, after their leases were ended."""
        for worker in workers:
            self._path(worker).unlink(missing_ok=True)

    @property
    def own(self) -> list[str]:
        """The workers that this process has claimed."""
        return list(self._own)

    def leave(self, workers: list[str]) -> None:
        """Remove and unlock files of this process: these workers hold no leases."""
        self.forget(workers)
        for worker in workers:
            unlock(self._own.pop(worker))

    def release(self) -> None:
        """Unlock all files of this process. Workers that still hold leases are then found dead by others."""
        for file in self._own.values():
            unlock(file)
        self._own.clear()

    def _path(self, worker: str) -> Path:
        return self._folder / quote(worker, safe="")
