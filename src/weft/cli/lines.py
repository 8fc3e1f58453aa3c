"""Lines of a file or a pipe, as they come."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator

from weft.errors import WeftError

# About a thousand URLs.
_CHUNK = 64 * 1024


def named_file(file: str) -> str:
    """What a message calls it."""
    return "standard input" if file == "-" else file


@contextlib.contextmanager
def source_of(file: str) -> Iterator[int]:
    """A file to read from, ``-`` for standard input.

    :raises WeftError: it can't be opened.
    """
    if file == "-":
        yield sys.stdin.fileno()
        return
    try:
        source = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise WeftError(f"{file}: {error.strerror}") from error
    try:
        yield source
    finally:
        os.close(source)


async def read_lines(source: int) -> AsyncIterator[list[bytes]]:
    """Whole lines, as many as there are at a time.

    :raises WeftError: they can't be read.
    """
    rest = b""
    while chunk := await _chunk(source):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _chunk(source: int) -> bytes:
    """What can be read now, or as soon as something comes; empty at the end."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(source, ready.set)
    except PermissionError:
        pass  # a file on a disk, which never keeps one waiting
    else:
        try:
            await ready.wait()
        finally:
            loop.remove_reader(source)
    try:
        return os.read(source, _CHUNK)
    except OSError as error:
        raise WeftError(f"what was given can't be read: {error.strerror}") from error
