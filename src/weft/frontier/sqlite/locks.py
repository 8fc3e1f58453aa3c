"""Locks on files. The system takes one away from a process when that ends, however it ends: so a lock is a sign of
life that can't lie.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock(path: Path) -> int:
    """The descriptor of the file, made if need be, that has the lock until it is closed.

    :raises BlockingIOError: another has it.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(file)
        raise
    return file


def is_locked(path: Path) -> bool:
    """Whether a living process has the lock; False if there is no such file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two who look are not taken for owners.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
