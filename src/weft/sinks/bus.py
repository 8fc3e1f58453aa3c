"""Items as messages on a topic, each *at least* once.

The message's ``id`` is the item's own, the same whenever its page is crawled, so that whoever reads them can tell a
repeat: after a kill -9 the last batch is sent again. Its key is the page, so items of one page stay together; the
header ``crawl`` names the crawl.

The bus has an event loop in a thread of its own, so that it keeps its connection while there is nothing to write. A
broker that is away is waited for a while before the output counts as failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from weft.bus.base import Bus, Message
from weft.errors import BusError, BusUnavailable, SinkError
from weft.frontier.base import StoredItem
from weft.sinks.base import Restart

_NOTE: Final = b"sent"
_PATIENCE_SECONDS: Final = 30.0
_LONGEST_PAUSE_SECONDS: Final = 2.0
_CLOSE_SECONDS: Final = 10.0

T = TypeVar("T")


class BusSink:
    """Publishes items to ``topic``. ``name`` has no password in it; ``connect`` opens the bus."""

    def __init__(self, name: str, topic: str, crawl: str, connect: Callable[[], Awaitable[Bus]]) -> None:
        self.name = name
        self._topic = topic
        self._headers = {"crawl": crawl}
        self._connect = connect
        self._loop = _Loop()
        self._bus: Bus | None = None

    def open(self, state: bytes) -> None:
        if state not in (b"", _NOTE):
            raise Restart("the note on this output is not that of a topic")
        if self._bus is None:
            self._bus = self._run(_awaited(self._connect()))

    def write(self, items: Sequence[StoredItem]) -> bytes:
        assert self._bus is not None
        self._run(self._publish(self._bus, [self._message(item) for item in items]))
        return _NOTE

    def close(self, finished: bool) -> None:
        bus, self._bus = self._bus, None
        try:
            if bus is not None:
                self._run(asyncio.wait_for(bus.close(), _CLOSE_SECONDS))
        except (SinkError, TimeoutError):
            pass  # all that was confirmed is there
        finally:
            self._loop.end()

    def _message(self, item: StoredItem) -> Message:
        page = item.id.partition("-")[0]
        return Message(topic=self._topic, payload=item.json, key=page, headers=self._headers, id=item.id)

    async def _publish(self, bus: Bus, messages: list[Message]) -> None:
        """Again and again while the broker is away; the ids tell repeats."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + _PATIENCE_SECONDS, 0.1
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
                f"can't write to {self.name}: {error}; put that right, then run the same command again. "
                "Nothing is lost: items wait in the crawl's store"
            ) from error


class _Loop:
    """An event loop that runs in a thread of its own from its first use until its end."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="weft-bus-sink", daemon=True)
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


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
