"""Subscribers in processes of their own, which tests may kill; see :mod:`uttu.testing.contracts.subscriber`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def child(url: str, group: str, topic: str, file: Path, **options: float) -> Iterator[subprocess.Popen[bytes]]:
    """One that writes to ``file`` what it has handled; killed at the end of the block."""
    given = [f"{name}={number}" for name, number in options.items()]
    command = [sys.executable, "-m", "uttu.testing.contracts.subscriber", url, group, topic, str(file), *given]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def is_ready(file: Path) -> bool:
    """Whether the child is subscribed."""
    return file.exists() and file.read_text().startswith("ready\n")


def handled(file: Path) -> list[tuple[str, int]]:
    """What a child has handled, in order, and at which attempt."""
    if not file.exists():
        return []
    whole, _, _ = file.read_text().rpartition("\n")
    return [(line.split()[0], int(line.split()[1])) for line in whole.splitlines()[1:]]
