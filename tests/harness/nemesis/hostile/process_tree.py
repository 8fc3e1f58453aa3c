"""The processes of a crawl, watched from outside: their memory, and how long they waited for a processor."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from bisect import bisect_left, bisect_right
from pathlib import Path

import psutil


class ProcessTree:
    """A process and all that it starts, also what outlives its parent."""

    def __init__(self, pid: int) -> None:
        self._root = pid
        self._known: dict[int, psutil.Process] = {}
        self._looks: list[float] = []
        self._delays: list[dict[int, float]] = []
        self.peak = 0
        """Bytes of the largest process so far."""

    def look(self) -> None:
        """Note who is there, and how large each has been up to now.

        The kernel keeps the high-water mark, so a peak between two looks is seen as well, unless its process is gone.
        """
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self._root)
            for process in (root, *root.children(recursive=True)):
                self._known.setdefault(process.pid, process)
        for process in tuple(self._known.values()):
            self.peak = max(self.peak, _high_water(process.pid))
        self._looks.append(time.monotonic())
        self._delays.append({pid: _run_delay(pid) for pid in self._known})

    def waited(self, since: float, until: float) -> float:
        """Seconds that one of the processes was ready to run and had no processor, by looks around that time.

        The kernel counts this for each thread; here it is the main thread, which runs the event loop. Of several
        processes the one that waited longest counts.
        """
        if not self._looks:
            return 0.0
        before = self._delays[max(0, bisect_right(self._looks, since) - 1)]
        after = self._delays[min(len(self._looks) - 1, bisect_left(self._looks, until))]
        return max((delay - before.get(pid, 0.0) for pid, delay in after.items()), default=0.0)

    def kill(self) -> list[str]:
        """End all that is left; returns their commands."""
        self.look()
        left = [process for process in self._known.values() if process.is_running()]
        commands = []
        for process in left:
            with contextlib.suppress(psutil.Error, OSError):
                if process.status() != psutil.STATUS_ZOMBIE:
                    commands.append(" ".join(process.cmdline()))
                    os.kill(process.pid, signal.SIGKILL)
        psutil.wait_procs(left, timeout=5)
        return commands


def _high_water(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    kilobytes = status.partition("VmHWM:")[2].split(maxsplit=1)
    return int(kilobytes[0]) * 1024 if kilobytes else 0


def _run_delay(pid: int) -> float:
    """Seconds that the main thread has waited on a run queue; 0 where the kernel does not count them."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
