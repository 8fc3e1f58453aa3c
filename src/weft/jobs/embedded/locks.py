"""Locks on files that say who is alive.

The kernel gives such a lock up when the last process that has the file open ends, kill -9 included, so there is nothing
to clean up and nothing to go stale. A lock belongs to the open file, not to the process: a child made by fork shares
it, and a program that is given the file descriptor holds it on. Lock files are never removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


def take(file: Path, *, shared: bool = False) -> int | None:
    """The descriptor that holds the lock; None if somebody is in the way.

    :raises OSError: the file can't be made or opened.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_taken(file: Path) -> bool:
    """Whether a process holds the lock alone."""
    if not file.exists():
        return False
    if (descriptor := take(file, shared=True)) is None:
        return True
    os.close(descriptor)
    return False


def is_of(descriptor: int, file: Path) -> bool:
    """Whether the descriptor is still open, and of the file that is there now."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), file.stat())
    return False
