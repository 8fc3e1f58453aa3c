"""Addresses, connections and error mapping for each kind of server, shared by all backends that use it.

One folder or module per kind of server: ``redis``, ``amqp``, ``kafka``. No module here knows whether it serves a bus or
a frontier. This module has what all of them need: the state of a connection with its listeners, and a way to tell a
failure of a driver from a bug in Uttu.

Drivers raise more than their documented errors. When a server dies in the middle of a command, redis-py's cluster
client raises ``AttributeError: 'NoneType' object has no attribute 'writelines'``; others raise ``RuntimeError``,
``KeyError`` or ``IncompleteReadError``. No list of types is complete, and a bug in Uttu raises the same types. So the
traceback decides (:func:`is_raised_in`): an unexpected exception raised inside the driver's package counts as a broken
connection; one raised in Uttu's code propagates unchanged.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Final


class ConnectionState(StrEnum):
    """The state of a connection to a server."""

    UP = "connected"
    LOST = "lost, and being restored"
    CLOSED = "closed"


ConnectionListener = Callable[[ConnectionState, str], None]
"""Called at every change with the new state and the reason."""


class ConnectionListeners:
    """The listeners of one connection."""

    def __init__(self) -> None:
        self._listeners: list[ConnectionListener] = []

    def add(self, listener: ConnectionListener) -> None:
        self._listeners.append(listener)

    def notify(self, state: ConnectionState, reason: str) -> None:
        for listener in self._listeners:
            listener(state, reason)


# Cython modules leave frames in a traceback. These run below every driver, so their frames are skipped.
_BELOW_DRIVERS: Final = frozenset({"uvloop", "hiredis", "async_timeout"})


def is_raised_in(error: BaseException, packages: Collection[str]) -> bool:
    """Return whether ``error`` was raised by code of one of the top-level ``packages``.

    The innermost frames of the standard library are skipped: if a driver passes a wrong value to ``asyncio`` or
    ``ssl``, the driver has failed.
    """
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    for name in reversed(frames):
        package = str(name).partition(".")[0]
        if package in packages:
            return True
        if package not in sys.stdlib_module_names and package not in _BELOW_DRIVERS:
            return False
    return False


def summarize_error(error: BaseException) -> str:
    """Describe an unexpected exception in one line: its type and the first line of its message."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
