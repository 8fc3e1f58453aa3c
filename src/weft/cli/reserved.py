"""Standard output, kept for what was asked for: what a spider prints meanwhile goes to standard error.

The descriptor is moved, and not only ``sys.stdout``: so it also holds for worker processes, and for programs that a
spider runs.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final

_OUT: Final = 1
_ERR: Final = 2


@contextlib.contextmanager
def reserved(wanted: bool) -> Iterator[BinaryIO]:
    """Where standard output leads to; within the block for nobody else, if that is ``wanted``."""
    kept = _moved() if wanted else None
    if kept is None:
        yield sys.stdout.buffer
        return
    with os.fdopen(kept, "wb") as out:
        try:
            yield out
        finally:
            # What the spider printed last must not follow the items.
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
            os.dup2(kept, _OUT)


def _moved() -> int | None:
    """A descriptor that leads where standard output did; None if there is no standard error to lead that to."""
    sys.stdout.flush()
    try:
        kept = os.dup(_OUT)
        os.dup2(_ERR, _OUT)
    except OSError:
        return None
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As it is not a terminal, lines would stay in its buffer while those of standard error are shown.
        sys.stdout.reconfigure(line_buffering=True)
    return kept
