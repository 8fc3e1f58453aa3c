"""Locks on files. The kernel releases them when the process ends, even after kill -9."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

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
