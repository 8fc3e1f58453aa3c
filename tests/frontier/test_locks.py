"""Locks on files are a sign of life of one process, not of the copies that it forks."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from uttu.file_locks import is_file_locked, lock_file, unlock


def test_a_copy_of_the_process_does_not_keep_its_locks(tmp_path: Path) -> None:
    file = lock_file(tmp_path / "lock")
    link_filter, opener = os.pipe()
    begun, beginner = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # the test's own process may have threads
        copy = os.fork()
    if copy == 0:
        os.close(opener)
        os.write(beginner, b"x")
        os.read(link_filter, 1)  # until the test is over
        os._exit(0)
    try:
        os.read(begun, 1)
        assert is_file_locked(tmp_path / "lock"), "the process itself has it still"
        unlock(file)
        assert not is_file_locked(tmp_path / "lock")
    finally:
        for end in (link_filter, opener, begun, beginner):
            os.close(end)
        os.waitpid(copy, 0)
