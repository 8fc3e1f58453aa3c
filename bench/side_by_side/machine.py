"""The machine, the versions of everything that was measured, and what else the machine did meanwhile."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil

_LIBRARIES: Final = ("pyreqwest", "selectolax", "ada-url", "msgspec", "uvloop")
_PEERS: Final = ("scrapy", "scrapy-redis", "crawlee", "twisted", "parsel", "lxml", "redis", "uvloop")
_COLLY: Final = Path(__file__).parent / "jobs" / "colly" / "go.mod"


def describe_machine() -> dict[str, str | int]:
    """``load_before`` is the load average. Call this before anything is measured."""
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


class Use(NamedTuple):
    """``stolen`` is the percentage of all cores' time that the hypervisor gave to other virtual machines (CPU steal).

    ``busy`` is the CPU seconds that all processes of this machine used together, on its ``cores``.
    """

    stolen: float
    busy: float
    cores: int


class UseMeter:
    """Measures the use of all cores from the moment it is made. Only Linux reports steal; elsewhere it is 0."""

    def __init__(self) -> None:
        self._began, self._stolen, self._busy = time.monotonic(), *_read_times()

    def read(self) -> Use:
        stolen, busy = _read_times()
        cores = os.cpu_count() or 1
        seconds = (time.monotonic() - self._began) * cores
        return Use(round((stolen - self._stolen) / seconds * 100, 1), busy - self._busy, cores)


def _read_times() -> tuple[float, float]:
    """Seconds since boot: stolen, and used by processes and the kernel."""
    times = psutil.cpu_times()
    used = times.user + times.system + getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0)
    return float(getattr(times, "steal", 0.0)), used + getattr(times, "nice", 0.0)


def find_versions(peers: Path, nginx: str) -> dict[str, str]:
    """Versions of Uttu, its libraries, the other crawlers and the servers."""
    # bench.common imports this module without the test harness.
    from tests.harness.servers.programs import redis_program

    found = {"uttu": f"{version('uttu')} ({_commit()})"} | {name: version(name) for name in _LIBRARIES}
    listed = _output(str(peers / "python"), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check")
    installed = {each["name"].lower(): each["version"] for each in msgspec.json.decode(listed)}
    found |= {name: installed[name] for name in _PEERS}
    if (peers / "colly").exists():
        found["colly"] = re.findall(r"gocolly/colly/v2 v(\S+)", _COLLY.read_text())[0]
        found["go"] = _output("go", "env", "GOVERSION").removeprefix("go")
    found["nginx"] = _output(nginx, "-v").rpartition("/")[2]
    found["redis-server"] = re.findall(r"v=(\S+)", _output(redis_program("any"), "--version"))[0]
    return found


def _commit() -> str:
    """The commit, with a + if the source has changes."""
    try:
        changed = _output("git", "status", "--short", "src")
        return _output("git", "rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "not from a clone"


def _output(*command: str) -> str:
    """What a command prints. nginx prints its version to standard error."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return (done.stdout or done.stderr).strip()
