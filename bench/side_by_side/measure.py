"""What a command takes: time, CPU and memory, of its whole tree of processes."""

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

_LOOK_AGAIN: Final = 0.25
_MAXRSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class Taken(NamedTuple):
    """``seconds`` by the clock from start to end; ``cpu`` seconds, user and system, of all processes waited for.

    ``peak`` is the most bytes that were resident at once, summed over the processes, as seen every quarter of a second.
    """

    status: int
    seconds: float
    cpu: float
    peak: int


def measure(command: Sequence[str], folder: Path, environment: Mapping[str, str], limit: float) -> Taken:
    """Run it in ``folder``, where ``log.txt`` takes what it prints; killed after ``limit`` seconds."""
    with (folder / "log.txt").open("wb") as log:
        began = time.monotonic()
        # A session of its own, so that all it starts can be killed with it.
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
    with _Memory(process.pid) as memory:
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        killer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return Taken(process.returncode, seconds, cpu, max(memory.peak, usage.ru_maxrss * _MAXRSS_UNIT))


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a running process has used."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


class _Memory:
    """Looks at a tree of processes from a thread."""

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
        while not self._ended.wait(_LOOK_AGAIN):
            self.peak = max(self.peak, self._resident())

    def _resident(self) -> int:
        total = 0
        try:
            for process in (self._root, *self._root.children(recursive=True)):
                total += process.memory_info().rss
        except psutil.Error:  # one has just ended
            return 0
        return total
