"""Cutting what is sent to a server, or read from it, by its size.

A server takes no more than its ``proto-max-bulk-len`` in one piece, 512 MB if nobody changed it, and hangs up on
whoever sends more. It is also deaf to all others while it works on a large piece.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

OPERATION_BYTES: Final = 32_000_000
"""Of one operation. What is larger by itself goes alone."""
LARGEST_BYTES: Final = 256_000_000
"""What is larger is not sent at all."""

_pack = msgspec.msgpack.Encoder().encode


def packed(value: Any) -> msgspec.Raw:
    """To be sent as a part of something else; its length is known."""
    return msgspec.Raw(_pack(value))


def size_of(raw: msgspec.Raw) -> int:
    return len(memoryview(raw))


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def cut(entries: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """In their order, lists of at most so many bytes, or of one entry."""
    piece: list[T] = []
    total = 0
    for entry in entries:
        weight = size(entry)
        if piece and total + weight > most:
            yield piece
            piece, total = [], 0
        piece.append(entry)
        total += weight
    if piece:
        yield piece


async def gathered(
    entries: AsyncIterator[T], size: Callable[[T], int], count: int, most: int
) -> AsyncIterator[list[T]]:
    """As they come, lists of at most so many entries, which end when they reach so many bytes."""
    piece: list[T] = []
    total = 0
    async for entry in entries:
        piece.append(entry)
        total += size(entry)
        if len(piece) >= count or total >= most:
            yield piece
            piece, total = [], 0
    if piece:
        yield piece
