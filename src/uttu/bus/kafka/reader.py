"""Read the partitions of one subscriber with the driver's consumer, from the event loop and from a thread.

    event loop                                          thread
    takes messages that the driver has   ─ requests ─►  polls for messages, commits, seeks, pauses, leaves
    (never blocks)                       ◄── events ──  (may block)
         └────────── self.consumer: one call at a time, by the holder of the lock _driver ──────────┘

While the driver has messages, the loop takes them itself (``fetch``), a batch at a time: passing messages between
threads would be slower. If it has none, the loop calls ``want``. The thread then polls for the first message, takes
those that came with it, and rests until the next ``want``. All other calls that may block are requests in the queue
``_orders`` to the thread. The loop never waits for the lock; it only tries to acquire it.

The driver calls its callbacks (assigned, revoked, committed) inside a poll, in the loop or in the thread. They become
events in ``_news``, and the loop handles these in order. The loop polls only between two batches, when the handler
holds no message, so a partition can be revoked at once there.

While the handler is busy, the thread reads ahead up to the prefetch. After ``_FULL_SECONDS`` without room it pauses all
partitions: then it can poll for events of the group without receiving messages. It does not pause earlier, because
pausing discards messages that the driver has fetched.
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

from uttu.bus.base import HeaderFilter
from uttu.bus.kafka.partition import PartitionBatch, PartitionState, split_by_partition
from uttu.clients.kafka import FATAL, KafkaAddress, get_error, is_driver_error, to_bus_error
from uttu.errors import BusError

_IDLE_SECONDS: Final = 0.1  # timeout of a poll
_BUSY_SECONDS: Final = 0.01  # timeout of a poll while a commit is due soon
_REST_SECONDS: Final = 0.05  # how long the thread waits for requests while the loop takes messages itself
_FULL_SECONDS: Final = 0.2  # how long there is no room until partitions are paused
_MAX_CONSUME: Final = 1000  # messages in one call of consume


class ReaderEvents(Protocol):
    """The events of a reader; all are called in the event loop, in order."""

    def assigned(self, lanes: Sequence[PartitionState]) -> None: ...

    def arrived(self, runs: Sequence[PartitionBatch]) -> None: ...

    def revoked(self, lanes: Sequence[PartitionState], released: threading.Event) -> None:
        """Stop delivering messages of these partitions; set ``released`` when the handler holds none of them."""

    def gone(self, lanes: Sequence[PartitionState]) -> None:
        """These partitions are revoked."""

    def ended(self, error: BusError | None) -> None: ...


class PartitionReader(ABC):
    """Reads partitions, and reports messages to ``taker``.

    A subclass chooses the partitions (``begin``, ``tend``), commits (``commit``) and ends (``leave``).

    :param settings: settings of librdkafka in addition to the common ones.
    :param taker: receives the events.
    :param prefetch: maximum number of unacknowledged messages.
    :param where: drop messages that do not match this filter.
    """

    def __init__(
        self,
        address: KafkaAddress,
        settings: dict[str, Any],
        taker: ReaderEvents,
        *,
        prefetch: int,
        where: HeaderFilter | None,
    ) -> None:
        self.address = address
        self.lanes: dict[tuple[str, int], PartitionState] = {}
        self.closing = False
        self.taker = taker
        self._where = where
        self.prefetch = prefetch
        self.enough = max(1, prefetch // 4)  # minimum room for a read; smaller reads are inefficient
        self._portion = min(_MAX_CONSUME, max(1, prefetch // 2))  # maximum number of messages in one read of the thread
        self.taken = 0
        """Total number of messages read. Write it only while holding ``_driver``."""
        self.freed = 0
        """How many of them are no longer held. Written by the loop only."""
        self._held = False
        """The subscription is paused."""
        self._full_since = 0.0
        """Since when there is no room (``time.monotonic``), or 0."""
        self._wanted = True
        """The loop waits for messages or, at first, for partitions."""
        self._fetched = False
        """The loop has used the driver since the thread last checked."""
        self._loop = asyncio.get_running_loop()
        self._driver = threading.Lock()
        self._news: deque[Callable[[], None]] = deque()
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._later: list[Callable[[], None]] = []
        """Requests to execute in the thread's next round: received ones, and those to repeat."""
        self._thread = threading.Thread(target=self._run, name="uttu kafka reader", daemon=True)
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
        """Execute a request in the thread, which holds ``_driver`` meanwhile."""
        self._orders.put(order)

    # Called in the event loop.

    def fetch(self, limit: int) -> None:
        """Report events, and up to ``limit`` messages that the driver has fetched. Never blocks.

        Call it only while the handler holds no message: the driver may revoke partitions in this call.
        """
        if self._driver.acquire(blocking=False):
            try:
                if self.lanes and not self._news and not self.closing:
                    self.commit()
                    if (most := min(self.allowed(), limit)) > 0:
                        self._fetched = True
                        self._take_in(self.consumer.consume(most, 0))
            except Exception as failure:
                if isinstance(failure, BusError) or not is_driver_error(failure):
                    raise
                raise self._failure(failure) from failure
            finally:
                self._driver.release()
        self._hear()

    def want(self) -> None:
        """Let the thread poll for messages, and report them."""

        def order() -> None:
            self._wanted = True

        self.order(order)

    def free(self, count: int) -> None:
        """Make room for ``count`` messages. Update ``PartitionState.position`` before: a commit reads both."""
        self.freed += count

    def rewind(self, lane: PartitionState, offset: int, epoch: int) -> None:
        """Seek to ``offset``, and pause the partition until :meth:`go_on` with the same epoch."""

        def order() -> None:
            if self._reads(lane):
                lane.waiting = True
                self._flow()
                try:
                    self.consumer.seek(TopicPartition(lane.topic, lane.partition, offset))
                except KafkaException:  # for example while a broker is unavailable: try again in the next round
                    self._later.append(order)
                else:
                    lane.reading = epoch

        self.order(order)

    def go_on(self, lane: PartitionState, epoch: int) -> None:
        """Continue to read a partition after :meth:`rewind`; does nothing if it was rewound again since."""

        def order() -> None:
            if lane.reading == epoch:
                lane.waiting = False
                self._flow()
            elif lane.reading < epoch and self._reads(lane):
                self._later.append(order)

        self.order(order)

    def hold(self, paused: bool) -> None:
        """Pause or resume all partitions."""

        def order() -> None:
            self._held = paused
            self._flow()

        self.order(order)

    async def close(self) -> None:
        """Commit, leave the group, and end the thread. Returns after the address's ``timeout`` in any case."""

        def order() -> None:
            self.closing = True

        self.order(order)
        await asyncio.to_thread(self._thread.join, self.address.options.timeout)

    # For subclasses. The caller holds _driver. Called in the thread, unless the docstring says otherwise.

    @abstractmethod
    def begin(self) -> None:
        """Subscribe to topics, or take partitions."""

    @abstractmethod
    def tend(self) -> None:
        """Do regular work; called in each round of the thread."""

    def commit(self) -> bool:
        """Request a commit if it is time, without waiting for it. Called in the loop, too.

        Returns whether another commit will be due soon.
        """
        return False

    @property
    def room(self) -> int:
        """The prefetch minus the messages that are held."""
        return self.prefetch - self.taken + self.freed

    def allowed(self) -> int:
        """Return how many messages may be read now. Called in the loop, too."""
        return self.room

    @abstractmethod
    def leave(self) -> None:
        """Commit for the last time; called before the driver's consumer is closed."""

    def take(self, places: Sequence[TopicPartition]) -> None:
        """Start to read partitions, and report them. Called in the loop, too."""
        lanes = [PartitionState(place.topic, place.partition) for place in places]
        self.lanes |= {(lane.topic, lane.partition): lane for lane in lanes}
        if places:
            self.consumer.incremental_assign(list(places))
            self._flow()
        self.tell(self.taker.assigned, lanes)

    def drop(self, places: Sequence[TopicPartition]) -> list[PartitionState]:
        """Stop to track partitions; return the states of those that were tracked. Called in the loop, too."""
        lanes = [self.lanes.pop((place.topic, place.partition), None) for place in places]
        return [lane for lane in lanes if lane is not None]

    def _reads(self, lane: PartitionState) -> bool:
        return self.lanes.get((lane.topic, lane.partition)) is lane

    @property
    def is_in_loop(self) -> bool:
        return threading.current_thread() is not self._thread

    def tell(self, what: Callable[..., None], *values: object) -> None:
        """Report an event in the event loop: at the end of :meth:`fetch` if called there, else as soon as possible."""
        self._news.append(partial(what, *values))
        if not self.is_in_loop:
            try:
                self._loop.call_soon_threadsafe(self._hear)
            except RuntimeError:  # the loop is closed, so nobody handles events any more
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
        except BusError as failure:
            error = failure
        except Exception as failure:
            # Catch every exception: without the event `ended`, the subscriber would wait without limit.
            error = self._failure(failure)
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
        """Wait up to ``_REST_SECONDS`` for a request; not if the loop waits for messages and there is room."""
        if not self._wanted or self._is_full():
            with contextlib.suppress(queue.Empty):
                self._later.append(self._orders.get(timeout=_REST_SECONDS))

    def _work(self) -> None:
        """One round of the thread: requests, regular work, commits, messages."""
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
        """Wait up to ``seconds`` for a message, and take further ones that the driver has already."""
        first = self.consumer.poll(seconds)
        if first is None:
            return
        messages = [first]
        if (most := min(self.allowed(), self._portion)) > 1:
            messages += self.consumer.consume(most - 1, 0)
        self._take_in(messages)

    def _take_in(self, messages: Sequence[Message]) -> None:
        if runs := split_by_partition(messages, self.lanes, self._where, self._trouble):
            if count := sum(len(run.offsets) for run in runs):
                self._wanted = False
                self.taken += count
            self.tell(self.taker.arrived, runs)

    def _failure(self, failure: Exception) -> BusError:
        return to_bus_error(get_error(failure), self.address.brokers, "can't read on")

    def _trouble(self, error: KafkaError) -> None:
        # Other errors pass: a topic may be created later, and brokers reconnect.
        if error.fatal() or error.code() in FATAL:
            raise to_bus_error(error, self.address.brokers, "can't read")

    def _flow(self) -> None:
        """Pause and resume partitions according to ``_full_since``, ``_held`` and ``PartitionState.waiting``."""
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
