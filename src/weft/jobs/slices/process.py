"""The process of a slice, seen from the task that started it."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import msgspec
from celery.exceptions import SoftTimeLimitExceeded

from weft.jobs.slices.order import HAND_ON, STOP, Order, Word

# -P: the folder it is run in must not hide Python's own modules, or ours.
COMMAND: Final = (sys.executable, "-P", "-m", "weft.jobs.slices.child")
_LOOK_SECONDS: Final = 2.0
_CHUNK: Final = 1 << 16


class SliceDied(Exception):
    """The process ended without a last word; ``code`` as :mod:`subprocess` has it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"by signal {-code}" if code < 0 else f"with exit code {code}")


def run(order: Order, folder: Path, hear: Callable[[Word], None], is_called_off: Callable[[], bool]) -> Word:
    """Run a slice to its end; returns its last word. The others go to ``hear``.

    The process does not outlive this one by more than it takes to finish what is in flight. A soft time limit lets it
    hand on.

    :raises SliceDied: it was killed.
    """
    process = start(order, folder)
    assert process.stdin
    try:
        with contextlib.closing(_words(process, is_called_off)) as words:
            for word in words:
                if word.end is not None:
                    process.wait()
                    return word
                hear(word)
        raise SliceDied(process.wait())
    finally:
        # If it has not ended, this is how it hears that nobody waits for it.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        if process.stdout:
            process.stdout.close()


def start(order: Order, folder: Path) -> subprocess.Popen[bytes]:
    """The process, with its order given."""
    process = subprocess.Popen(
        COMMAND, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
    )
    _tell(process, msgspec.json.encode(order).decode())
    return process


def _words(process: subprocess.Popen[bytes], is_called_off: Callable[[], bool]) -> Generator[Word]:
    assert process.stdout
    decode = msgspec.json.Decoder(Word).decode
    rest = b""
    called_off = False
    looked = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            try:
                ready = selector.select(_LOOK_SECONDS)
                if not called_off and time.monotonic() - looked > _LOOK_SECONDS:
                    looked = time.monotonic()
                    called_off = is_called_off()
                    if called_off:
                        _tell(process, STOP)
            except SoftTimeLimitExceeded:
                _tell(process, HAND_ON)
                continue
            if ready:
                chunk = os.read(process.stdout.fileno(), _CHUNK)
                if not chunk:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                yield from map(decode, lines)


def _tell(process: subprocess.Popen[bytes], line: str) -> None:
    """If it is gone, that is seen elsewhere."""
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line.encode() + b"\n")
