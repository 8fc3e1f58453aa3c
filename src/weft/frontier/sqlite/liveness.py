"""Which workers of this machine are still alive.

Every worker holds a lock on a file of its own for as long as it lives; the system lets go of it
when the process ends, however it ends. So a lock that can be had belongs to a worker that is
gone, and its leases need not wait for their deadline.

``claim``, ``gone`` and ``forget`` are called within a write transaction, whose lock one process
has at a time: nobody looks at a file while another makes or removes it.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, unquote

from weft.errors import StoreError
from weft.frontier.sqlite.locks import is_locked, lock


class Liveness:
    """The lock files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: dict[str, int] = {}

    def claim(self, worker: str) -> None:
        """Say that ``worker`` lives, until :meth:`release` or the end of the process.

        :raises StoreError: another one of this name lives.
        """
        if worker in self._own:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            file = lock(self._path(worker))
        except BlockingIOError as error:
            raise StoreError(
                f"a worker named {worker!r} is at work on this crawl already; give each a name of its own"
            ) from error
        self._own[worker] = file

    def alive(self, worker: str) -> bool:
        """Whether ``worker`` was claimed, here or elsewhere, and lives."""
        return worker in self._own or is_locked(self._path(worker))

    def gone(self) -> list[str]:
        """Workers that claimed once and live no more, until they are forgotten."""
        try:
            names = [unquote(name) for name in os.listdir(self._folder)]
        except FileNotFoundError:
            return []
        return [name for name in names if name not in self._own and not is_locked(self._path(name))]

    def forget(self, workers: list[str]) -> None:
        """Their leases were ended: remove what they left."""
        for worker in workers:
            self._path(worker).unlink(missing_ok=True)

    @property
    def own(self) -> list[str]:
        """The workers that were claimed here."""
        return list(self._own)

    def leave(self, workers: list[str]) -> None:
        """These of our own have nothing left: end and forget them."""
        self.forget(workers)
        for worker in workers:
            os.close(self._own.pop(worker))

    def release(self) -> None:
        """Say that the workers claimed here have ended. Those that left leases are then found gone."""
        for file in self._own.values():
            os.close(file)
        self._own.clear()

    def _path(self, worker: str) -> Path:
        return self._folder / quote(worker, safe="")
