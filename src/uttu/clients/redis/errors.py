"""Errors of a Redis server: map them, classify them, explain them to users, and retry.

Every exception of the driver becomes one of ``REDIS_ERRORS``, also the undocumented ones (:func:`map_errors`). An error
is temporary (:func:`is_temporary`) if the server can't be reached, is loading its data, is out of memory, or is
currently a replica. :class:`Retrier` repeats a call while its error is temporary, and reports when the server becomes
unavailable and when it is available again. Any other error is raised at once.

A call whose answer was lost may have been executed. So a repeated call must be idempotent, or its caller must accept
that it takes effect twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import redis.asyncio.sentinel as aiosentinel
import redis.exceptions as refused

from uttu.clients import is_raised_in, summarize_error

OLDEST_VERSION: Final = (6, 2)
REDIS_ERRORS: Final = (refused.RedisError, refused.RedisClusterException, OSError, asyncio.TimeoutError)
"""The driver's documented errors. :func:`map_errors` makes all others one of these."""

_DRIVER: Final = frozenset({"redis"})
# uvloop's message for a connection that is lost before the first write; the traceback has no frame of the driver.
_LOST_ON_CONNECT: Final = "handler is closed"

# Waiting does not help against these, although some are subclasses of the driver's ConnectionError.
_PERMANENT: Final = (refused.AuthenticationError, refused.AuthorizationError, refused.NoPermissionError)
_TEMPORARY: Final = (
    refused.ConnectionError,
    refused.TimeoutError,
    refused.ReadOnlyError,
    refused.ClusterDownError,
    refused.TryAgainError,
    refused.OutOfMemoryError,
    refused.SlotNotCoveredError,
    OSError,
    asyncio.TimeoutError,
)
_TEMPORARY_WORDS: Final = ("BUSY", "MISCONF", "NOREPLICAS")
# Messages of RedisClusterException if no node answers, or not all nodes are known yet.
_CLUSTER_WORDS: Final = ("cannot be connected", "slots are not covered")
# Message of ClusterError if the nodes redirect a command to one another while a slot moves.
_REDIRECT_LOOP: Final = "TTL exhausted"

_PERMISSIONS: Final = (
    "The user needs INFO, EVAL and EVALSHA, better also FCALL and FUNCTION, and all commands on keys uttu:*; "
    "see ACL SETUSER"
)
# Pairs of words in an error message (lower case) and the advice for the user. The first match counts.
_ADVICE: Final = (
    (("wrongpass", "invalid username", "invalid password"), "Check the user and the password in the address"),
    (("without any password configured",), "The server has no password. Remove it from the address"),
    (("noauth", "authentication required"), "The server needs a password: redis://:PASSWORD@HOST:PORT"),
    (("channel",), "The user needs access to channels: ACL SETUSER USER allchannels"),
    (("no permission", "noperm"), _PERMISSIONS),
    (("db index", "invalid db"), "Check the number of the database at the end of the address"),
    (
        ("cluster mode is not enabled", "cluster support disabled"),
        "The server is not a cluster. Write the address as redis://",
    ),
    (
        ("certificate verify failed", "certificate_verify"),
        "Give the file of its certificate authority: rediss://…?ssl_ca_certs=FILE",
    ),
    (("ssl", "wrong version number"), "If the server does not use TLS, write redis:// without the second s"),
    (
        ("protocol error", "invalid response"),
        "Is it another program? If the server uses TLS, write rediss://",
    ),
    (
        ("closed by server", "reset by peer", "connection lost", "broken pipe"),
        "If the server uses TLS, write rediss://",
    ),
    (("is loading",), "The server has just started. Try again in a moment"),
    (("max number of clients",), "Raise its maxclients, or run fewer workers"),
    (("name or service", "nodename nor servname", "name resolution", "no address"), "Check the name of the host"),
    (("no such file",), "Check whether the server runs, and the path of its socket"),
    (("unknown command 'sentinel'",), "The server is not a sentinel. Write the address as redis://"),
    (("connect", "timeout"), "Check whether the server runs there"),
)
_NO_NODE: Final = "Redis Cluster cannot be connected. Please provide at least one reachable node: "


@contextmanager
def map_errors() -> Iterator[None]:
    """Raise undocumented exceptions of the driver as its ``ConnectionError``.

    When a connection ends in the middle of a call, the driver's half-closed objects raise ``AttributeError``,
    ``RuntimeError``, ``KeyError`` (slot table of a cluster) and others. The driver closes such a connection itself, so
    the next call gets a new one.
    """
    try:
        yield
    except REDIS_ERRORS:
        raise
    except Exception as error:
        if _LOST_ON_CONNECT in str(error):
            raise refused.ConnectionError("The connection was lost at once") from error
        if not is_raised_in(error, _DRIVER):
            raise
        raise refused.ConnectionError(f"The connection broke ({summarize_error(error)})") from error


def is_temporary(error: Exception) -> bool:
    """Return whether a retry may succeed: the server is unreachable, or can't execute commands at the moment."""
    if isinstance(error, _PERMANENT):
        return False
    if isinstance(error, _TEMPORARY):
        return True
    if isinstance(error, refused.ClusterError) and _REDIRECT_LOOP in str(error):
        return True
    if isinstance(error, refused.RedisClusterException):
        return any(words in str(error) for words in _CLUSTER_WORDS)
    return isinstance(error, refused.ResponseError) and str(error).startswith(_TEMPORARY_WORDS)


def describe_error(error: BaseException) -> str:
    """Describe an error in one line."""
    if isinstance(error, aiosentinel.MasterNotFoundError):
        unreached = " : " in str(error)
        return "The sentinels do not answer" if unreached else "The sentinels know no reachable primary of that name"
    text = str(error).strip() or str(error.__cause__ or "").strip() or type(error).__name__
    return text.splitlines()[0].removeprefix(_NO_NODE).rstrip(".?")


def explain_error(place: str, error: BaseException) -> str:
    """Return a message for the user: the address, the error and, if known, advice from ``_ADVICE``."""
    text = f"{error} {error.__cause__ or ''}".lower()
    advice = next((f". {advice}" for marks, advice in _ADVICE if any(mark in text for mark in marks)), "")
    if place.startswith("rediss") and "timeout" in text:  # a server without TLS does not answer a handshake
        advice = ". Check whether the server runs there. If it does not use TLS, write redis:// without the second s"
    return f"{place}: {describe_error(error)}{advice}"


def find_problems(info: dict[str, Any], *, cluster: bool) -> list[str]:
    """Return all reasons why Uttu can't use a server, from its answer to INFO.

    :param cluster: whether the address is that of a cluster.
    """
    problems = []
    version = str(info.get("redis_version", "0"))
    if _parse_version(version) < OLDEST_VERSION:
        problems.append(
            f"Redis {version} is too old. Uttu needs {'.'.join(map(str, OLDEST_VERSION))} or newer, or Valkey"
        )
    if info.get("role") == "slave":
        problems.append("The server is a read-only replica. Give the address of its primary, or redis+sentinel://")
    mode = info.get("redis_mode") or info.get("server_mode")  # Valkey has server_mode
    if mode == "sentinel":
        problems.append("The server is a sentinel. Write the address as redis+sentinel://HOST:PORT/SERVICE")
    if mode == "cluster" and not cluster:
        problems.append("The server is a node of a cluster. Write the address as redis+cluster://")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys") and str(info.get("maxmemory", 0)) != "0":
        problems.append(f"The server drops keys when memory is short (maxmemory-policy {policy}). Set it to noeviction")
    return problems


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split(".")[:2])


T = TypeVar("T")

_WAIT_SECONDS: Final = (0.05, 2.0)  # the first and the longest pause between two tries; it doubles each time


class Retrier:
    """Repeats calls while their errors are temporary, and reports when waiting begins and ends.

    One instance serves all calls to a server. So ``on_restored`` is called once, after the last waiting call succeeded.

    :param should_retry: returns whether to retry after this error.
    :param map_error: returns the exception to raise if a retry does not help, or the time is up.
    :param on_lost: called with the error after each failed try, except the first lost connection of a call.
    :param on_restored: called with the seconds of the outage when it is over.
    """

    def __init__(
        self,
        should_retry: Callable[[Exception], bool],
        map_error: Callable[[Exception], Exception],
        on_lost: Callable[[Exception], None],
        on_restored: Callable[[float], None],
    ) -> None:
        self._should_retry = should_retry
        self._map_error = map_error
        self._on_lost = on_lost
        self._on_restored = on_restored
        self._waiting = 0
        self._since: float | None = None

    async def __call__(self, work: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Call ``work`` until it succeeds, and return its result.

        :param seconds: how long to retry; None for no limit.
        """
        now = asyncio.get_running_loop().time
        end = None if seconds is None else now() + seconds
        wait, waited, reconnected = _WAIT_SECONDS[0], False, False
        try:
            while True:
                try:
                    result = await call_until(work(), end)
                    break
                except REDIS_ERRORS as error:
                    if not self._should_retry(error):
                        raise self._map_error(error) from error
                    if isinstance(error, refused.ConnectionError) and not reconnected:
                        reconnected = True  # perhaps only a pooled connection was closed: retry at once, unreported
                        continue
                    self._waiting += not waited
                    waited = True
                    self._since = self._since or now()
                    self._on_lost(error)
                    if end is not None and now() + wait > end:
                        raise self._map_error(error) from error
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))
                wait = min(wait * 2, _WAIT_SECONDS[1])
        finally:
            self._waiting -= waited
        # One call may succeed while another still waits: a server that is out of memory can still be read.
        if self._since is not None and not self._waiting:
            outage, self._since = now() - self._since, None
            self._on_restored(outage)
        return result


async def call_until(work: Awaitable[T], end: float | None) -> T:
    """Like :func:`call_driver`, with a deadline in the event loop's time; None for no deadline.

    :raises redis.exceptions.TimeoutError: the deadline has passed.
    """
    limit = asyncio.timeout_at(end)
    try:
        async with limit:
            return await call_driver(work)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise refused.TimeoutError("Timeout: the server does not answer") from error


async def call_driver(work: Awaitable[T]) -> T:
    """Await a call to the driver; every error of the driver becomes one of ``REDIS_ERRORS``.

    The driver uses ``asyncio.wait_for``, which before Python 3.12 drops a cancel that arrives together with the result.
    The canceller would then wait without limit. So a dropped cancel is raised here.
    """
    task = asyncio.current_task()
    cancels = task.cancelling() if task is not None else 0
    try:
        with map_errors():
            return await work
    finally:
        if task is not None and task.cancelling() > cancels:
            raise asyncio.CancelledError
