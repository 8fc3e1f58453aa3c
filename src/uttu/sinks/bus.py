"""Publish items as messages on a topic, each *at least* once.

The ``id`` of a message is the id of the item, the same whenever its page is crawled, so readers can detect repeats:
after a kill -9 the last batch is sent again. The key is the page, so items of one page stay together. The header
``crawl`` has the name of the crawl.

The bus has an event loop in a dedicated thread, so that it keeps its connection alive while there is nothing to write.
While the broker is unavailable, ``write`` retries for ``_RETRY_SECONDS`` before it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from uttu.bus.base import Bus, Message
from uttu.errors import BusError, BusUnavailable, SinkError
from uttu.frontier.base import StoredItem
from uttu.sinks.base import Restart

_STATE: Final = b"sent"
_RETRY_SECONDS: Final = 30.0
_LONGEST_PAUSE_SECONDS: Final = 2.0
_CLOSE_SECONDS: Final = 10.0

T = TypeVar("T")


class BusSink:
    """Publishes items to ``topic``.

    :param name: the address of the output, without a password.
    :param connect: opens the bus.
    """

    def __init__(self, name: str, topic: str, crawl: str, connect: Callable[[], Awaitable[Bus]]) -> None:
        self.name = name
        self._topic = topic
        self._headers = {"crawl": crawl}
        self._connect = connect
        self._loop = _LoopThread()
        self._bus: Bus | None = None

    def open(self, state: bytes) -> None:
        if state not in (b"", _STATE):
            raise Restart("The stored state is not that of a topic")
        if self._bus is None:
            self._bus = self._run(_await(self._connect()))

    def write(self, items: Sequence[StoredItem]) -> bytes:
        assert self._bus is not None
        self._run(self._publish(self._bus, [self._message(item) for item in items]))
        return _STATE

    def close(self, finished: bool) -> None:
        bus, self._bus = self._bus, None
        try:
            if bus is not None:
                self._run(asyncio.wait_for(bus.close(), _CLOSE_SECONDS))
        except (SinkError, TimeoutError):
            pass  # everything that was confirmed is on the bus
        finally:
            self._loop.end()

    def _message(self, item: StoredItem) -> Message:
        page = item.id.partition("-")[0]
        return Message(topic=self._topic, payload=item.json, key=page, headers=self._headers, id=item.id)

    async def _publish(self, bus: Bus, messages: list[Message]) -> None:
        """Publish, and retry for ``_RETRY_SECONDS`` while the broker is unavailable. Repeats have the same ids."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + _RETRY_SECONDS, 0.1
        while True:
            try:
                await bus.publish(messages)
                return
            except BusUnavailable:
                if loop.time() + pause > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(work)
        except BusError as error:
            raise SinkError(
                f"Cannot write to {self.name}: {error}. Fix this, then run the same command again; "
                "no item is lost, they wait in the crawl's store"
            ) from error


class _LoopThread:
    """An event loop in a dedicated thread, from the first :meth:`run` until :meth:`end`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="uttu-bus-sink", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def end(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(_CLOSE_SECONDS)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
