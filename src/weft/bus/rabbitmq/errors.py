"""The driver's errors, where they enter.

A lost connection or channel is an affair of this package, which tries again: :class:`Lost`. What the broker says no to
is :class:`weft.errors.BusRefused`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    InvalidFrameError,
    ProbableAuthenticationError,
)

from weft.errors import BusRefused

# What happened is told by errors and to listeners. Without this the driver would print it as well, trace and all.
logging.getLogger("aiormq").addHandler(logging.NullHandler())

# The broker cuts what it says at 255 bytes.
_inequivalent: Final = re.compile(
    r"inequivalent arg '(?P<name>[^']+)' for (?P<kind>\w+) '(?P<what>[^']+)'"
    r"(?: in vhost '[^']*': received (?P<wanted>.*?) but current is (?P<found>.*))?"
).search


class Lost(Exception):
    """The connection or the channel went away."""


class NotFound(BusRefused):
    """What was asked for is not there."""


class Different(BusRefused):
    """It is there, with another value of ``argument``."""

    def __init__(self, text: str, argument: str = "") -> None:
        super().__init__(text)
        self.argument = argument


@contextmanager
def driver() -> Iterator[None]:
    """:raises Lost: try again. :raises BusRefused: don't."""
    try:
        yield
    except ChannelNotFoundEntity as error:
        # A classic queue is away with its node, and comes back with it.
        if "no queue" in str(error) or "no exchange" in str(error):
            raise NotFound(_text(error)) from error
        raise Lost(_text(error)) from error
    except ChannelPreconditionFailed as error:
        raise _different(_text(error)) from error
    except (ChannelAccessRefused, ChannelLockedResource) as error:
        raise BusRefused(f"the broker does not allow it: {_text(error)}") from error
    except (AMQPError, ChannelInvalidStateError, OSError, RuntimeError) as error:
        raise Lost(_text(error)) from error
    except asyncio.CancelledError as error:
        # The driver ends what waits for a lost connection in this way; nobody has cancelled this task then.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise Lost("the connection was closed") from error


@contextmanager
def connecting(user: str, vhost: str) -> Iterator[None]:
    """As :func:`driver`, while the connection is made."""
    try:
        with driver():
            yield
    except Lost as lost:
        cause = lost.__cause__
        text = str(lost)
        if isinstance(cause, (ProbableAuthenticationError, AuthenticationError)):
            raise BusRefused(f"the login of {user} is refused: {text}") from cause
        # The driver expects an answer to its opening the vhost, and does not tell what it got instead.
        if isinstance(cause, InvalidFrameError) and "Connection.OpenOk" in text:
            raise BusRefused(f"the vhost {vhost} is not there, not ready, or {user} may not use it") from cause
        raise


def _different(text: str) -> Different:
    found = _inequivalent(text)
    if not found:
        return Different(text)
    what = f"the {found['kind']} {found['what']} is there with "
    if found["found"] is None:
        what += f"another {found['name']}"
    else:
        what += f"{found['name']}={_value(found['found'])}, not {_value(found['wanted'])}"
    return Different(f"{what}; use another name, or delete it first", found["name"])


def _value(text: str) -> str:
    # "the value 'x' of type 'longstr'", "'x'" or "none"
    quoted = re.search(r"'(.*?)'(?: of type '\w+')?$", text)
    return quoted[1] if quoted else text


def _text(error: BaseException) -> str:
    return " ".join(str(part) for part in error.args) or repr(error)
