"""What users' functions raise: told from what is ours, and shown without our frames around theirs."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import Final

_OURS: Final = tuple(str(Path(__file__).parents[1] / room) for room in ("engine", "spider"))
# What users' functions may raise without taking the crawl down: also sys.exit(), and a future of theirs that was
# cancelled.
BY_USERS: Final = (Exception, SystemExit, asyncio.CancelledError)


def reraise_own_cancel(error: BaseException) -> None:
    """A cancel of this task is not the user's doing."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error


def frames_of(error: BaseException) -> str:
    """Where it was raised, by the lines of the user's code and of what that called."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    return storable("".join(traceback.format_list(frames)))


def message_of(error: BaseException) -> str:
    """Its type and what it says, in one line or several."""
    return storable("".join(traceback.format_exception_only(error)).strip()) or type(error).__name__


def line_of(error: BaseException) -> str:
    """The same in one line: the first, but of a syntax error, which begins with the lines that it is about."""
    return message_of(error).splitlines()[-1 if isinstance(error, SyntaxError) else 0]


def storable(text: str) -> str:
    """Without lone surrogates, which no store takes."""
    return text.encode("utf-8", "replace").decode()
