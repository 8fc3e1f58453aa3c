"""Runs a command and measures time, CPU and memory of its whole process tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import psutil

_POLL_SECONDS: Final = 0.25
_MAXRSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class Usage(NamedTuple):
    """``seconds`` is wall time; ``cpu`` is the CPU seconds, user and system, of the process and its children.

    ``peak`` is the largest resident memory in bytes, summed over the processes, sampled every ``_POLL_SECONDS``.
    """

    status: int
    seconds: float
    cpu: float
    peak: int


def measure(command: Sequence[str], folder: Path, environment: Mapping[str, str], limit: float) -> Usage:
    """Run ``command`` in ``folder``, with its output in ``log.txt`` there. It is killed after ``limit`` seconds."""
    with (folder / "log.txt").open("wb") as log:
        began = time.monotonic()
        # A new session, so that the processes it starts can be killed with it.
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    killer = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
    killer.start()
    try:
        with _Memory(process.pid) as memory:
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.monotonic() - began
    except BaseException:  # Ctrl-C does not reach another session
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        killer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return Usage(process.returncode, seconds, cpu, max(memory.peak, usage.ru_maxrss * _MAXRSS_UNIT))


def read_cpu_seconds(pid: int) -> float:
    """CPU seconds that a running process has used."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


class _Memory:
    """Samples the resident memory of a process tree, in a thread."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            self.peak = max(self.peak, self._resident())

    def _resident(self) -> int:
        total = 0
        try:
            for process in (self._root, *self._root.children(recursive=True)):
                total += process.memory_info().rss
        except psutil.Error:  # one has just ended
            return 0
        return total
