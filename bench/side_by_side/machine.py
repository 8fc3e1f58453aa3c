"""What is measured on."""

from __future__ import annotations

import os
import platform
import re
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
