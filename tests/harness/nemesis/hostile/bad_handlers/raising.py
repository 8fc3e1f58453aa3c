"""Handlers that raise what handlers do not raise."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

from uttu import Page

_MB: Final = 1024 * 1024


def raises_cancelled(page: Page) -> None:
    """raises CancelledError"""
    raise asyncio.CancelledError


def raises_generator_exit(page: Page) -> None:
    """raises GeneratorExit"""
    raise GeneratorExit


def raises_interrupt(page: Page) -> None:
    """raises KeyboardInterrupt"""
    raise KeyboardInterrupt


async def raises_interrupt_async(page: Page) -> None:
    """raises KeyboardInterrupt after an await"""
    await asyncio.sleep(0.01)
    raise KeyboardInterrupt


def raises_exit(page: Page) -> None:
    """raises SystemExit"""
    sys.exit(0)


async def raises_exit_async(page: Page) -> None:
    """raises SystemExit after an await"""
    await asyncio.sleep(0.01)
    sys.exit(3)


class _Base(BaseException):
    pass


def raises_base(page: Page) -> None:
    """raises another BaseException"""
    raise _Base("base")


def raises_group(page: Page) -> None:
    """raises a BaseExceptionGroup"""
    raise BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError()])


def raises_stop(page: Page) -> None:
    """raises StopIteration"""
    raise StopIteration


async def raises_stop_async(page: Page) -> None:
    """raises StopAsyncIteration"""
    raise StopAsyncIteration


def raises_memory(page: Page) -> None:
    """raises MemoryError"""
    raise MemoryError


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no")

    __repr__ = __str__


def raises_unprintable(page: Page) -> None:
    """raises an error that can't be printed"""
    raise _Unprintable


def raises_large(page: Page) -> None:
    """raises an error with a message of 50 MB"""
    raise ValueError("x" * (50 * _MB))


def raises_surrogate(page: Page) -> None:
    """raises an error with a lone surrogate"""
    raise ValueError("\ud800")


def recursion(page: Page) -> None:
    """calls itself without end"""
    recursion(page)


def recursion_json(page: Page) -> object:
    """reads JSON a million levels deep"""
    return json.loads("[" * 1_000_000)
