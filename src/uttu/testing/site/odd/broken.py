"""Servers that are too slow, or stop in the middle."""

from __future__ import annotations

import asyncio
from typing import Final

from uttu.testing.site.message import TEXT, Answer, Exchange, Incoming, Reply, html

_BODY: Final = b"This text has an end, but not everybody gets to read it.\n"
_HALF: Final = len(_BODY) // 2
_START: Final = Answer(content_type=TEXT)


def broken(parts: list[str], incoming: Incoming) -> Reply:
    match parts:
        case ["slow"]:
            return _Slow(incoming.number("seconds", 1))
        case ["drip"]:
            return _Drip(incoming.number("seconds", 1), int(incoming.number("bytes", 10)))
        case ["stall"]:
            return _stall
        case ["hang"]:
            return _hang
        case ["close"]:
            return _close
        case ["reset"]:
            return _reset
        case ["truncated"]:
            return _truncated_chunked if "chunked" in incoming.query else _truncated
        case ["garbage"]:
            return _garbage
    return None


class _Slow:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def __call__(self, exchange: Exchange) -> None:
        await asyncio.sleep(self._seconds)
        await exchange.send(html("Slow", "<p>But here.</p>"))


class _Drip:
    def __init__(self, seconds: float, size: int) -> None:
        self._size = max(size, 1)
        self._pause = seconds / self._size

    async def __call__(self, exchange: Exchange) -> None:
        exchange.start(_START, self._size)
        for _ in range(self._size):
            await asyncio.sleep(self._pause)
            await exchange.write(b".")


async def _hang(exchange: Exchange) -> None:
    await asyncio.Event().wait()


async def _stall(exchange: Exchange) -> None:
    exchange.start(_START, len(_BODY))
    await exchange.write(_BODY[:_HALF])
    await asyncio.Event().wait()


async def _close(exchange: Exchange) -> None:
    exchange.close()


async def _reset(exchange: Exchange) -> None:
    exchange.start(_START, len(_BODY))
    await exchange.write(_BODY[:_HALF])
    # Give the client time to read the head: a reset discards what it has not read yet.
    await asyncio.sleep(0.05)
    await exchange.reset()


async def _truncated(exchange: Exchange) -> None:
    exchange.start(_START, len(_BODY))
    await exchange.write(_BODY[:_HALF])
    exchange.close()


async def _truncated_chunked(exchange: Exchange) -> None:
    exchange.start(_START, None)
    await exchange.write(_BODY)
    exchange.close()


async def _garbage(exchange: Exchange) -> None:
    await exchange.raw(b"\x16\x03\x01 SSH-2.0-NotAWebServer\r\n\x00\xff\xfe lorem ipsum\r\n\r\n")
    exchange.close()
