"""What is measured on, and what of it others had meanwhile."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path

import psutil


def machine() -> dict[str, str | int]:
    """``load_before`` is what else was going on; ask before anything is measured."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": f"{os.getloadavg()[0]:.2f}",
    }


def _cpu() -> str:
    try:
        return str(re.findall(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())[0])
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


class Theft:
    """What of a virtual machine's time others on the same hardware had meanwhile; where Linux says so."""

    def __init__(self) -> None:
        self._began, self._stolen = time.monotonic(), _stolen()

    @property
    def percent(self) -> float:
        """Of the time of all cores since this was made."""
        seconds = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return round((_stolen() - self._stolen) / seconds * 100, 1)


def _stolen() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))
