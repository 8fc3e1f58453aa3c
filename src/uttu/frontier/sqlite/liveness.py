"""File locks that show which workers of this machine are alive.

Every worker holds a lock on its own file while it lives. The kernel releases the lock when the process ends, even after
kill -9. If the lock can be taken, the worker is dead, and its leases need not wait for their deadline.

``claim``, ``gone`` and ``forget`` run inside a write transaction, which only one process has at a time. So no process
checks a lock file while another creates or removes it.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, unquote

from uttu.errors import StoreError
from uttu.file_locks import is_file_locked, lock_file, unlock


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
