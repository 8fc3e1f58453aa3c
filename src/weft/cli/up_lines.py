"""What several processes print, line by line, each line behind the name of its process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from typing import Final

_COLOURS: Final = (36, 33, 32, 35, 34, 31)
_CHUNK: Final = 64 * 1024


class Lines:
    """Goes to standard error, as all do that are no data; coloured if a person is looking."""

    def __init__(self, names: Collection[str]) -> None:
        width = max(map(len, (*names, "up")))
        self._heads = {}
        for number, name in enumerate(("up", *names)):
            head = f"{name:{width}} | "
            if sys.stderr.isatty():
                head = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{head}\x1b[0m"
            self._heads[name] = head.encode()

    def say(self, text: str) -> None:
        """A line of our own."""
        self._write("up", [text.encode()])

    async def copy(self, name: str, source: asyncio.StreamReader) -> None:
        """All lines until the source ends."""
        rest = b""
        while chunk := await source.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            self._write(name, lines)
        if rest:
            self._write(name, [rest])

    def _write(self, name: str, lines: list[bytes]) -> None:
        head = self._heads[name]
        sys.stderr.buffer.write(b"".join(head + line + b"\n" for line in lines))
        sys.stderr.buffer.flush()
