"""Read lines from a file or a pipe as they arrive, without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator

from uttu.errors import UttuError

# Bytes per read; about a thousand URLs.
_CHUNK = 64 * 1024


def describe_source(file: str) -> str:
    """The name of a source in messages."""
    return "standard input" if file == "-" else file


@contextlib.contextmanager
def open_source(file: str) -> Iterator[int]:
    """Open a file and return its descriptor; ``-`` is standard input.

    :raises UttuError: it can't be opened.
    """
    if file == "-":
        yield sys.stdin.fileno()
        return
    try:
        source = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UttuError(f"{file}: {error.strerror}") from error
    try:
        yield source
    finally:
        os.close(source)


async def read_lines(source: int) -> AsyncIterator[list[bytes]]:
    """Yield lists of complete lines as they arrive.

    :raises UttuError: the source can't be read.
    """
    rest = b""
    while chunk := await _read_chunk(source):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _read_chunk(source: int) -> bytes:
    """Read up to ``_CHUNK`` bytes as soon as there are any; empty at the end."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(source, ready.set)
    except PermissionError:
        pass  # a regular file: epoll refuses it, and reading it does not wait
    else:
        try:
            await ready.wait()
        finally:
            loop.remove_reader(source)
    try:
        return os.read(source, _CHUNK)
    except OSError as error:
        raise UttuError(f"what was given can't be read: {error.strerror}") from error
