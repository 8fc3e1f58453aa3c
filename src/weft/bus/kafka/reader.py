"""Consumes for one subscriber.

    event loop                                       thread
    takes what the driver has fetched   ─ want ──►   waits for messages and for commits; seeks, pauses, leaves
    (never blocks)                      ◄── news ─   (may block)
         └─────────── the driver, which allows one call at a time: whoever has the lock ───────────┘

While there are messages the loop takes them itself, a batch at a time, so that none of them changes threads. When there
are none it wants them of the thread, which waits for the first, takes what came with it, and rests until it is wanted
again. Whatever else may block is put in a queue of orders to the thread. The loop only tries the lock.

What the driver tells (partitions come or go, a commit is answered) it tells to whoever has it, and news are heard in
the order in which they were told, by whichever of the two. The loop has the driver only between two batches, when the
handler has no message: so partitions may go at once then.

While a handler takes long the thread reads ahead, as long as there is room. If there is none for a while, partitions
are paused, so that the driver can be asked for news of the group without handing out messages. Pausing throws away what
it has fetched ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from weft.bus.base import Where
from weft.bus.kafka.address import Address
from weft.bus.kafka.errors import HOPELESS, the_error, told
from weft.bus.kafka.lane import Lane
from weft.bus.kafka.run import Run, runs_of
from weft.errors import BusError

_IDLE_SECONDS: Final = 0.1  # in one call, with nothing to do
_BUSY_SECONDS: Final = 0.01  # in one call, while something is to be committed soon
_REST_SECONDS: Final = 0.05  # between two looks at whether the loop takes messages itself
_FULL_SECONDS: Final = 0.2  # without room, until partitions are paused
_MOST_AT_ONCE: Final = 1000


class Taker(Protocol):
    """What the loop is told, in the loop."""

    def assigned(self, lanes: Sequence[Lane]) -> None: ...

    def arrived(self, runs: Sequence[Run]) -> None: ...

    def revoked(self, lanes: Sequence[Lane], released: threading.Event) -> None:
        """Hand out nothing more of them; ``released`` is set when the handler has none of them any more."""

    def gone(self, lanes: Sequence[Lane]) -> None:
        """They are another's now."""

    def ended(self, error: BusError | None) -> None: ...


class Reader(ABC):
    """A subclass says how partitions are come by, in ``begin`` and ``tend``, and what is owed to them in the end."""

    def __init__(
        self, address: Address, settings: dict[str, Any], taker: Taker, *, prefetch: int, where: Where | None
    ) -> None:
        self.address = address
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.closing = False
        self.taker = taker
        self._where = where
        self.prefetch = prefetch
        self.enough = max(1, prefetch // 4)  # to read for less costs more than it brings
        self._portion = min(_MOST_AT_ONCE, max(1, prefetch // 2))  # of what the thread takes
        self.taken = 0
        """How many were read, ever: written by whoever has the driver, ..."""
        self.freed = 0
        """... and how many of them are no longer held: written by the loop."""
        self._held = False
        self._full_since = 0.0
        self._wanted = True
        """The loop waits for messages; at first, for partitions."""
        self._fetched = False
        """The loop has had the driver since the thread looked."""
        self._loop = asyncio.get_running_loop()
        self._driver = threading.Lock()
        self._news: deque[Callable[[], None]] = deque()
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._later: list[Callable[[], None]] = []
        """Orders that are still to be done."""
        self._thread = threading.Thread(target=self._run, name="weft kafka reader", daemon=True)
        self._settings = (
            address.client()
            | {
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 1000,
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 10,
                "queued.max.messages.kbytes": 16_384,
            }
            | settings
        )

    def start(self) -> None:
        self._thread.start()

    def order(self, order: Callable[[], None]) -> None:
        """Have it done in the thread, soon."""
        self._orders.put(order)

    # What the loop asks for.

    def fetch(self, limit: int) -> None:
        """Tell the taker the news, and so many messages at most that the driver has. Not while the handler has any."""
        if self._driver.acquire(blocking=False):
            try:
                if self.lanes and not self._news and not self.closing:
                    self.commit()
                    if (most := min(self.allowed(), limit)) > 0:
                        self._fetched = True
                        self._take_in(self.consumer.consume(most, 0))
            except KafkaException as failure:
                raise self._failure(failure) from failure
            finally:
                self._driver.release()
        self._hear()

    def want(self) -> None:
        """Wait for messages, and tell the taker."""

        def order() -> None:
            self._wanted = True

        self.order(order)

    def free(self, count: int) -> None:
        """So many that were read are no longer held. Positions that this moves are moved before."""
        self.freed += count

    def rewind(self, lane: Lane, offset: int, epoch: int) -> None:
        """Read on from there, but not before :meth:`go_on`."""

        def order() -> None:
            if self._reads(lane):
                lane.waiting = True
                self._flow()
                try:
                    self.consumer.seek(TopicPartition(lane.topic, lane.partition, offset))
                except KafkaException:  # not yet to be moved; a broker may be away
                    self._later.append(order)
                else:
                    lane.reading = epoch

        self.order(order)

    def go_on(self, lane: Lane, epoch: int) -> None:
        def order() -> None:
            if lane.reading == epoch:
                lane.waiting = False
                self._flow()
            elif lane.reading < epoch and self._reads(lane):
                self._later.append(order)

        self.order(order)

    def hold(self, paused: bool) -> None:
        def order() -> None:
            self._held = paused
            self._flow()

        self.order(order)

    async def close(self) -> None:
        """Commit, leave, end; returns in any case when the time is up, as brokers may be away."""

        def order() -> None:
            self.closing = True

        self.order(order)
        await asyncio.to_thread(self._thread.join, self.address.options.timeout)

    # What a subclass does, with the driver in its hands: in the thread, unless it says otherwise.

    @abstractmethod
    def begin(self) -> None:
        """Come by partitions."""

    @abstractmethod
    def tend(self) -> None:
        """Called again and again."""

    def commit(self) -> bool:
        """Ask for commits without waiting for them, also in the loop. Whether some are to be asked for soon."""
        return False

    @property
    def room(self) -> int:
        return self.prefetch - self.taken + self.freed

    def allowed(self) -> int:
        """How many may be read."""
        return self.room

    @abstractmethod
    def leave(self) -> None:
        """The last thing before the consumer is closed."""

    def take(self, places: Sequence[TopicPartition]) -> None:
        """Begin to read them."""
        lanes = [Lane(place.topic, place.partition) for place in places]
        self.lanes |= {(lane.topic, lane.partition): lane for lane in lanes}
        if places:
            self.consumer.incremental_assign(list(places))
            self._flow()
        self.tell(self.taker.assigned, lanes)

    def drop(self, places: Sequence[TopicPartition]) -> list[Lane]:
        """Those of them that were read."""
        lanes = [self.lanes.pop((place.topic, place.partition), None) for place in places]
        return [lane for lane in lanes if lane is not None]

    def _reads(self, lane: Lane) -> bool:
        return self.lanes.get((lane.topic, lane.partition)) is lane

    @property
    def is_in_loop(self) -> bool:
        return threading.current_thread() is not self._thread

    def tell(self, what: Callable[..., None], *values: object) -> None:
        """In the loop; at the end of :meth:`fetch`, if it is there already."""
        self._news.append(partial(what, *values))
        if not self.is_in_loop:
            try:
                self._loop.call_soon_threadsafe(self._hear)
            except RuntimeError:  # the loop is closed: whoever had it is gone
                self.closing = True

    def _hear(self) -> None:
        while self._news:
            self._news.popleft()()

    # The thread.

    def _run(self) -> None:
        error: BusError | None = None
        try:
            with self._driver:
                self.consumer = Consumer(self._settings)
                self.begin()
            while not self.closing:
                self._rest()
                with self._driver:
                    self._work()
        except KafkaException as failure:
            error = self._failure(failure)
        except BusError as failure:
            error = failure
        finally:
            with self._driver:
                self._end()
            self.tell(self.taker.ended, error)

    def _end(self) -> None:
        self.closing = True
        with contextlib.suppress(KafkaException, AttributeError, RuntimeError):
            self.leave()
        with contextlib.suppress(KafkaException, AttributeError, RuntimeError):
            self.consumer.close()

    def _rest(self) -> None:
        """Until something is asked for, or for a while; not at all if the driver is to be waited for."""
        if not self._wanted or self._is_full():
            with contextlib.suppress(queue.Empty):
                self._later.append(self._orders.get(timeout=_REST_SECONDS))

    def _work(self) -> None:
        self._obey()
        self.tend()
        seconds = _BUSY_SECONDS if self.commit() else _IDLE_SECONDS
        by_loop, self._fetched = self._fetched, False
        if self._is_full():
            if not by_loop:
                self._wait_for_room()
            return
        if self._full_since:
            self._full_since = 0.0
            self._flow()
        if self._wanted:
            self._poll(seconds)
        elif not by_loop:
            self._poll(0)

    def _obey(self) -> None:
        later, self._later = self._later, []
        with contextlib.suppress(queue.Empty):
            while True:
                later.append(self._orders.get_nowait())
        for order in later:
            order()

    def _is_full(self) -> bool:
        return self.allowed() < self.enough

    def _wait_for_room(self) -> None:
        self._full_since = self._full_since or time.monotonic()
        if time.monotonic() - self._full_since > _FULL_SECONDS:
            self._flow()
            self._poll(0)

    def _poll(self, seconds: float) -> None:
        """A message, for which is waited so long, and what may come with it."""
        first = self.consumer.poll(seconds)
        if first is None:
            return
        messages = [first]
        if (most := min(self.allowed(), self._portion)) > 1:
            messages += self.consumer.consume(most - 1, 0)
        self._take_in(messages)

    def _take_in(self, messages: Sequence[Message]) -> None:
        if runs := runs_of(messages, self.lanes, self._where, self._trouble):
            if count := sum(len(run.offsets) for run in runs):
                self._wanted = False
                self.taken += count
            self.tell(self.taker.arrived, runs)

    def _failure(self, failure: KafkaException) -> BusError:
        return told(the_error(failure), self.address.brokers, "can't read on")

    def _trouble(self, error: KafkaError) -> None:
        # A topic that is not there may come, and brokers that are away come back.
        if error.fatal() or error.code() in HOPELESS:
            raise told(error, self.address.brokers, "can't read")

    def _flow(self) -> None:
        """Pause and resume as things are."""
        full = self._full_since and time.monotonic() - self._full_since > _FULL_SECONDS
        changed: dict[bool, list[TopicPartition]] = {True: [], False: []}
        for lane in self.lanes.values():
            paused = bool(full or self._held or lane.waiting)
            if paused != lane.paused:
                lane.paused = paused
                changed[paused].append(TopicPartition(lane.topic, lane.partition))
        if changed[True]:
            self.consumer.pause(changed[True])
        if changed[False]:
            self.consumer.resume(changed[False])
