"""The session of a process with a coordinator that does not keep sessions itself: files and Redis.

The process renews its session six times in ``session_seconds``, and knows by its own clock what it may assume: the
session ends at the earliest ``session_seconds`` after the last renewal that was confirmed, counted from the moment when
it was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from uttu.cluster.base import Coordinator, Node, SessionState, StateListener, TreeWatch, check_path, was_closed
from uttu.cluster.watching import Watches
from uttu.errors import ClusterError, SessionLost

_SETTLE_SECONDS = 0.1
_log = logging.getLogger("uttu.cluster")


def monotonic() -> float:
    """Seconds that never jump, and go on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class StateListeners:
    """The state of a session, and who hears of its changes."""

    def __init__(self) -> None:
        self.state = SessionState.SUSPENDED
        self._listeners: dict[object, StateListener] = {}

    def add(self, listener: StateListener) -> Callable[[], None]:
        key = object()
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    def set(self, state: SessionState) -> None:
        if state != self.state:
            self.state = state
            for listener in tuple(self._listeners.values()):
                listener(state)


class TimedSession(ABC):
    """The part of a coordinator that keeps its session.

    :param look_seconds: seconds between two calls of ``_look``.
    """

    def __init__(self, url: str, session_seconds: float, look_seconds: float) -> None:
        self.url = url
        self.session = ""
        self.session_seconds = session_seconds
        self._look_seconds = look_seconds
        self._renewed = 0.0  # when the last renewal that was confirmed was sent
        self._states = StateListeners()
        self._watches = Watches(self._read_part)
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> SessionState:
        """By the clock, too: a process that was stopped knows it before its event loop has run."""
        state = self._states.state
        if state in (SessionState.CONNECTED, SessionState.SUSPENDED):
            quiet = monotonic() - self._renewed
            if quiet > self.session_seconds:
                return SessionState.LOST
            if quiet > self.session_seconds / 3:
                return SessionState.SUSPENDED
        return state

    def listen(self, listener: StateListener) -> Callable[[], None]:
        return self._states.add(listener)

    def watch(self, path: str, *, recursive: bool = False) -> AbstractAsyncContextManager[TreeWatch]:
        return self._watches.open(check_path(path), recursive=recursive)

    async def close(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        with contextlib.suppress(ClusterError):
            await self._end()
        self._watches.close()
        self._states.set(SessionState.CLOSED)

    async def _start(self) -> None:
        """Begin the first session.

        :raises ClusterUnavailable: that is not possible.
        """
        await self._begin()
        self._states.set(SessionState.CONNECTED)
        self._task = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        """Renew the session, begin another after it was lost, and set the state."""
        while True:
            await asyncio.sleep(self._look_seconds)
            self._states.set(self.state)
            try:
                if self._states.state == SessionState.LOST:
                    await self._begin()
                    self._watches.wake()
                await self._look()
            except SessionLost:
                self._states.set(SessionState.LOST)
                continue
            except ClusterError as error:
                _log.warning("%s", error)
                continue
            # Not if it took longer: the session may be over.
            if monotonic() - self._renewed < self.session_seconds / 3:
                self._states.set(SessionState.CONNECTED)

    @property
    def _is_due(self) -> bool:
        """Whether to renew the session: it is time, or the connection was broken."""
        return self._states.state != SessionState.CONNECTED or monotonic() - self._renewed > self.session_seconds / 6

    @abstractmethod
    async def _begin(self) -> None:
        """Begin a new session: set ``session`` and ``_renewed``."""

    @abstractmethod
    async def _look(self) -> None:
        """Renew the session if ``_is_due``, and wake up watches.

        :raises SessionLost: it is over.
        """

    @abstractmethod
    async def _end(self) -> None:
        """End the session and close everything."""

    @abstractmethod
    async def _read_part(self, path: str, recursive: bool) -> list[Node]:
        """See ``ReadTree``."""


async def wait_until_connected(tree: Coordinator) -> None:
    """Wait until the coordinator is connected, and a moment at least.

    :raises ClusterError: it was closed.
    """
    await wait_for_state(tree, lambda state: state in (SessionState.CONNECTED, SessionState.CLOSED))
    if tree.state == SessionState.CLOSED:
        raise was_closed(tree.url)


async def wait_for_state(tree: Coordinator, is_right: Callable[[SessionState], bool]) -> None:
    """Wait until the state of the session is right, and a moment at least."""
    await asyncio.sleep(_SETTLE_SECONDS)
    changed = asyncio.Event()
    stop = tree.listen(lambda state: changed.set())
    try:
        while not is_right(tree.state):
            await changed.wait()
            changed.clear()
    finally:
        stop()
