"""Map the errors of aiormq.

A lost connection or channel becomes :class:`ConnectionLost`: the caller repeats the operation on a new one. A refusal
by the broker becomes :class:`uttu.errors.BusRefused`, or one of its subclasses here if the caller can act on it.
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

from uttu.clients.errors import is_raised_in, summarize_error
from uttu.errors import BusError, BusRefused

# Errors reach callers as exceptions and listeners as states. Without a handler, logging would also print aiormq's
# records, with their tracebacks, to stderr.
logging.getLogger("aiormq").addHandler(logging.NullHandler())

_DRIVER: Final = frozenset({"aiormq", "pamqp", "yarl"})

# The broker truncates its message to 255 bytes, so the second part may be missing.
_inequivalent: Final = re.compile(
    r"inequivalent arg '(?P<name>[^']+)' for (?P<kind>\w+) '(?P<what>[^']+)'"
    r"(?: in vhost '[^']*': received (?P<wanted>.*?) but current is (?P<found>.*))?"
).search


class ConnectionLost(Exception):
    """The connection or the channel went away."""


class EntityNotFound(BusRefused):
    """The queue or exchange does not exist."""


class DeclarationMismatch(BusRefused):
    """The queue or exchange exists with another value of ``argument`` (empty if the broker does not name it)."""

    def __init__(self, text: str, argument: str = "") -> None:
        super().__init__(text)
        self.argument = argument


@contextmanager
def map_errors() -> Iterator[None]:
    """Map every error of the driver that is raised in the block.

    :raises ConnectionLost: repeat the operation on a new channel.
    :raises BusRefused: the broker refuses; a retry would fail in the same way.
    """
    try:
        yield
    except ChannelNotFoundEntity as error:
        # Other 404s pass: a classic queue, for example, is unavailable while its node is down.
        if "no queue" in str(error) or "no exchange" in str(error):
            raise EntityNotFound(_describe(error)) from error
        raise ConnectionLost(_describe(error)) from error
    except ChannelPreconditionFailed as error:
        raise _parse_mismatch(_describe(error)) from error
    except (ChannelAccessRefused, ChannelLockedResource) as error:
        raise BusRefused(f"the broker does not allow it: {_describe(error)}") from error
    except (AMQPError, ChannelInvalidStateError, OSError) as error:
        raise ConnectionLost(_describe(error)) from error
    except BusError:
        raise
    except Exception as error:
        # When a connection ends in the middle of a call, the driver raises arbitrary errors. Errors that were raised
        # in Uttu's code propagate unchanged.
        if not isinstance(error, RuntimeError) and not is_raised_in(error, _DRIVER):
            raise
        raise ConnectionLost(f"the connection broke ({summarize_error(error)})") from error
    except asyncio.CancelledError as error:
        # The driver cancels its futures when the connection is lost. In that case nobody has cancelled this task.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ConnectionLost("the connection was closed") from error


@contextmanager
def map_connect_errors(user: str, vhost: str) -> Iterator[None]:
    """Like :func:`map_errors`, for the block that connects and logs in.

    :raises BusRefused: the login is wrong, or the vhost can't be used.
    """
    try:
        with map_errors():
            yield
    except ConnectionLost as lost:
        cause = lost.__cause__
        text = str(lost)
        if isinstance(cause, (ProbableAuthenticationError, AuthenticationError)):
            raise BusRefused(f"the login of {user} is refused: {text}") from cause
        # The driver reports only that Connection.OpenOk did not come, and not the broker's answer instead of it.
        if isinstance(cause, InvalidFrameError) and "Connection.OpenOk" in text:
            raise BusRefused(f"the vhost {vhost} is not there, not ready, or {user} may not use it") from cause
        raise


def _parse_mismatch(text: str) -> DeclarationMismatch:
    found = _inequivalent(text)
    if not found:
        return DeclarationMismatch(text)
    what = f"the {found['kind']} {found['what']} is there with "
    if found["found"] is None:
        what += f"another {found['name']}"
    else:
        what += f"{found['name']}={_parse_value(found['found'])}, not {_parse_value(found['wanted'])}"
    return DeclarationMismatch(f"{what}; use another name, or delete it first", found["name"])


def _parse_value(text: str) -> str:
    # The text is "the value 'x' of type 'longstr'", "'x'" or "none".
    quoted = re.search(r"'(.*?)'(?: of type '\w+')?$", text)
    return quoted[1] if quoted else text


def _describe(error: BaseException) -> str:
    return " ".join(str(part) for part in error.args) or repr(error)
