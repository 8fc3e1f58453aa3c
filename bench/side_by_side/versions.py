"""The version of everything that was measured."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
from tests.harness.servers.programs import redis_program

_LIBRARIES: Final = ("pyreqwest", "selectolax", "ada-url", "msgspec", "uvloop")
_PEERS: Final = ("scrapy", "scrapy-redis", "crawlee", "twisted", "parsel", "lxml", "redis", "uvloop")
_COLLY: Final = Path(__file__).parent / "jobs" / "colly" / "go.mod"


def versions(peers: Path, nginx: str) -> dict[str, str]:
    found = {"uttu": f"{version('uttu')} ({_commit()})"} | {name: version(name) for name in _LIBRARIES}
    listed = _says(str(peers / "python"), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check")
    installed = {each["name"].lower(): each["version"] for each in msgspec.json.decode(listed)}
    found |= {name: installed[name] for name in _PEERS}
    if (peers / "colly").exists():
        found["colly"] = re.findall(r"gocolly/colly/v2 v(\S+)", _COLLY.read_text())[0]
        found["go"] = _says("go", "env", "GOVERSION").removeprefix("go")
    found["nginx"] = _says(nginx, "-v").rpartition("/")[2]
    found["redis-server"] = re.findall(r"v=(\S+)", _says(redis_program("any"), "--version"))[0]
    return found


def _commit() -> str:
    try:
        return _says("git", "rev-parse", "--short", "HEAD") + ("+" if _says("git", "status", "--short", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return "not from a clone"


def _says(*command: str) -> str:
    """What it prints; nginx tells its version as an error."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return (done.stdout or done.stderr).strip()
