"""Read the partitions of one subscriber with the driver's consumer, from the event loop and from a thread.

    event loop                                           thread
    takes messages that the driver has    ─ requests ─►  polls for messages, commits, seeks, pauses, leaves
    (never blocks)                        ◄── events ──  (may block)
         └─ PartitionReader: the driver; one call at a time, by the holder of its lock ─┘

Two classes are shared, each with its lock. All other state belongs to one thread, which its class names.

- :class:`Mailbox`: what the threads tell each other. Its lock is held for a moment only.
- :class:`PartitionReader`: the driver's consumer and its partitions. Whoever uses the driver holds the lock. The thread
  holds it while it polls. The loop never waits for the lock; it only tries to acquire it (``fetch``).

While the driver has messages, the loop takes them itself (``fetch``), a batch at a time: passing messages between
threads would be slower. If it has none, the loop calls ``request_messages``. The thread then polls for the first
message, takes those that came with it, and rests until the next request. All other calls that may block are requests,
too.

The driver calls its callbacks (assigned, revoked, committed) inside a poll, in the loop or in the thread. They become
events, and the loop handles these in order. The loop polls only between two batches, when the handler holds no message,
so a partition can be revoked at once there.

While the handler is busy, the thread reads ahead up to the prefetch. After ``_FULL_SECONDS`` without room it pauses all
partitions: then it can poll for events of the group without receiving messages. It does not pause earlier, because
pausing discards messages that the driver has fetched.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from uttu.bus.base import SubscribeOptions
from uttu.bus.kafka.partition import AssignedPartition, PartitionBatch, PartitionId, split_by_partition
from uttu.clients.kafka import FATAL, KafkaAddress, get_error, is_driver_error, to_bus_error
from uttu.errors import BusError

_IDLE_SECONDS: Final = 0.1  # timeout of a poll
_BUSY_SECONDS: Final = 0.01  # timeout of a poll while a commit is due soon
_REST_SECONDS: Final = 0.05  # how long the thread waits for requests while the loop takes messages itself
_FULL_SECONDS: Final = 0.2  # how long there is no room until partitions are paused
_MAX_CONSUME: Final = 1000  # messages in one call of consume

Action = Callable[[], None]


class Progress(msgspec.Struct, frozen=True):
    """What the handler has done, at one moment."""

    freed: int
    """Total number of messages that were read and are no longer held."""
    positions: Mapping[AssignedPartition, int]
    """All offsets below these are done, and may be committed."""


class Mailbox:
    """What the event loop and the thread tell each other. Shared: every method takes the lock, for a moment.

    requests   from the loop, executed in the thread
    progress   from the loop, read by the holder of the reader's lock
    events     from the holder of the reader's lock, handled in the loop
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._requests: list[Action] = []
        self._freed = 0
        self._positions: dict[AssignedPartition, int] = {}
        self._events: deque[Action] = deque()

    def add_request(self, request: Action) -> None:
        with self._lock:
            self._requests.append(request)
            self._lock.notify()

    def take_requests(self) -> list[Action]:
        with self._lock:
            requests, self._requests = self._requests, []
            return requests

    def wait_for_request(self, seconds: float) -> None:
        with self._lock:
            if not self._requests:
                self._lock.wait(seconds)

    def report_progress(self, freed: int, positions: Mapping[AssignedPartition, int] | None = None) -> None:
        """Record positions, and add ``freed`` messages; both become visible together."""
        with self._lock:
            self._freed += freed
            if positions:
                self._positions.update(positions)

    def forget(self, partitions: Iterable[AssignedPartition]) -> None:
        """Forget the positions of revoked partitions."""
        with self._lock:
            for partition in partitions:
                self._positions.pop(partition, None)

    @property
    def freed(self) -> int:
        with self._lock:
            return self._freed

    def read_progress(self) -> Progress:
        with self._lock:
            return Progress(self._freed, dict(self._positions))

    def add_event(self, event: Action) -> None:
        with self._lock:
            self._events.append(event)

    def take_event(self) -> Action | None:
        with self._lock:
            return self._events.popleft() if self._events else None

    @property
    def has_events(self) -> bool:
        with self._lock:
            return bool(self._events)


class ReaderListener(Protocol):
    """Receives the events of a reader; all methods are called in the event loop, in order."""

    def on_assigned(self, partitions: Sequence[AssignedPartition]) -> None: ...

    def on_messages(self, batches: Sequence[PartitionBatch]) -> None: ...

    def on_revoking(self, partitions: Sequence[AssignedPartition], released: threading.Event) -> None:
        """Stop delivering messages of these partitions; set ``released`` when the handler holds none of them."""

    def on_revoked(self, partitions: Sequence[AssignedPartition]) -> None: ...

    def on_end(self, error: BusError | None) -> None: ...


class PartitionReader(ABC):
    """The driver's consumer, its partitions, and the thread that polls it.

    Shared: all attributes belong to the holder of ``_lock``, except constants and ``mailbox``. The lock is taken in
    :meth:`fetch` (event loop) and in :meth:`_run` (thread), and nowhere else. All other methods below these two groups
    are called by the holder, or by the driver inside one of the holder's calls.

    A subclass chooses the partitions (``begin``, ``maintain``), commits (``commit``) and ends (``leave``): see
    :mod:`uttu.bus.kafka.assignment`.

    :param settings: settings of librdkafka in addition to the common ones.
    :param listener: receives the events.
    """

    def __init__(
        self, address: KafkaAddress, options: SubscribeOptions, settings: dict[str, Any], listener: ReaderListener
    ) -> None:
        self.address = address
        self.listener = listener
        self.mailbox = Mailbox()
        self.prefetch = options.prefetch
        self.min_room = max(1, options.prefetch // 4)  # minimum room for a read; smaller reads are inefficient
        self._max_read = min(_MAX_CONSUME, max(1, options.prefetch // 2))  # messages in one read of the thread
        self._options = options
        self._loop = asyncio.get_running_loop()
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
        self._lock = threading.Lock()
        self.driver: Consumer
        self.partitions: dict[PartitionId, AssignedPartition] = {}
        self.is_closing = False
        self.read_count = 0
        """Total number of messages read."""
        self._is_held = False
        """The subscription is paused."""
        self._full_since = 0.0
        """Since when there is no room (``time.monotonic``), or 0."""
        self._is_requested = True
        """The loop waits for messages or, at first, for partitions."""
        self._was_fetched = False
        """The loop has used the driver since the thread last checked."""
        self._repeated: list[Action] = []
        """Requests that failed, to execute again in the thread's next round."""

    # Called in the event loop.

    def start(self) -> None:
        self._thread.start()

    def fetch(self, limit: int) -> None:
        """Report events, and up to ``limit`` messages that the driver has fetched. Never blocks.

        Call it only while the handler holds no message: the driver may revoke partitions in this call.
        """
        if self._lock.acquire(blocking=False):
            try:
                if self.partitions and not self.mailbox.has_events and not self.is_closing:
                    self.commit()
                    if (count := min(self.allowed(), limit)) > 0:
                        self._was_fetched = True
                        self._report_messages(self.driver.consume(count, 0))
            except Exception as failure:
                if isinstance(failure, BusError) or not is_driver_error(failure):
                    raise
                raise self._map_failure(failure) from failure
            finally:
                self._lock.release()
        self._handle_events()

    def request_messages(self) -> None:
        """Let the thread poll for messages, and report them."""
        self.mailbox.add_request(self._set_requested)

    def rewind(self, partition: AssignedPartition, offset: int, epoch: int) -> None:
        """Seek to ``offset``, and pause the partition until :meth:`resume` with the same epoch."""
        self.mailbox.add_request(partial(self._rewind, partition, offset, epoch))

    def resume(self, partition: AssignedPartition, epoch: int) -> None:
        """Continue to read a partition after :meth:`rewind`; does nothing if it was rewound again since."""
        self.mailbox.add_request(partial(self._resume, partition, epoch))

    def set_paused(self, paused: bool) -> None:
        """Pause or resume all partitions."""
        self.mailbox.add_request(partial(self._set_held, paused))

    async def close(self) -> None:
        """Commit, leave the group, and end the thread. Returns after the address's ``timeout`` in any case."""
        self.mailbox.add_request(self._set_closing)
        await asyncio.to_thread(self._thread.join, self.address.options.timeout)

    def _handle_events(self) -> None:
        while (event := self.mailbox.take_event()) is not None:
            event()

    # The thread.

    def _run(self) -> None:
        error: BusError | None = None
        try:
            with self._lock:
                self.driver = Consumer(self._settings)
                self.begin()
                is_closing = False
            while not is_closing:
                with self._lock:
                    self._work()
                    is_closing, is_resting = self.is_closing, not self._is_requested or self._is_full()
                if is_resting and not is_closing:
                    self.mailbox.wait_for_request(_REST_SECONDS)
        except BusError as failure:
            error = failure
        except Exception as failure:
            # Catch every exception: without the event on_end, the subscriber would wait without limit.
            error = self._map_failure(failure)
        finally:
            with self._lock:
                self._end()
            self.post(self.listener.on_end, error)

    # Executed by the thread, as the holder of the lock.

    def _work(self) -> None:
        """One round of the thread: requests, maintenance, commits, messages."""
        requests, self._repeated = [*self._repeated, *self.mailbox.take_requests()], []
        for request in requests:
            request()
        self.maintain()
        seconds = _BUSY_SECONDS if self.commit() else _IDLE_SECONDS
        by_loop, self._was_fetched = self._was_fetched, False
        if self._is_full():
            if not by_loop:
                self._wait_for_room()
            return
        if self._full_since:
            self._full_since = 0.0
            self._update_pauses()
        if self._is_requested:
            self._poll(seconds)
        elif not by_loop:
            self._poll(0)

    def _wait_for_room(self) -> None:
        self._full_since = self._full_since or time.monotonic()
        if time.monotonic() - self._full_since > _FULL_SECONDS:
            self._update_pauses()
            self._poll(0)

    def _poll(self, seconds: float) -> None:
        """Wait up to ``seconds`` for a message, and take further ones that the driver has already."""
        first = self.driver.poll(seconds)
        if first is None:
            return
        messages = [first]
        if (count := min(self.allowed(), self._max_read)) > 1:
            messages += self.driver.consume(count - 1, 0)
        self._report_messages(messages)

    def _end(self) -> None:
        self.is_closing = True
        with contextlib.suppress(KafkaException, AttributeError, RuntimeError):
            self.leave()
        with contextlib.suppress(KafkaException, AttributeError, RuntimeError):
            self.driver.close()

    def _set_requested(self) -> None:
        self._is_requested = True

    def _set_held(self, paused: bool) -> None:
        self._is_held = paused
        self._update_pauses()

    def _set_closing(self) -> None:
        self.is_closing = True

    def _rewind(self, partition: AssignedPartition, offset: int, epoch: int) -> None:
        if not self._is_assigned(partition):
            return
        partition.is_rewound = True
        self._update_pauses()
        try:
            self.driver.seek(TopicPartition(partition.topic, partition.number, offset))
        except KafkaException:  # for example while a broker is unavailable: try again in the next round
            self._repeated.append(partial(self._rewind, partition, offset, epoch))
        else:
            partition.epoch = epoch

    def _resume(self, partition: AssignedPartition, epoch: int) -> None:
        if partition.epoch == epoch:
            partition.is_rewound = False
            self._update_pauses()
        elif partition.epoch < epoch and self._is_assigned(partition):
            self._repeated.append(partial(self._resume, partition, epoch))

    @abstractmethod
    def begin(self) -> None:
        """Subscribe to topics, or assign partitions."""

    @abstractmethod
    def maintain(self) -> None:
        """Do regular work; called in each round of the thread."""

    @abstractmethod
    def leave(self) -> None:
        """Commit for the last time; called before the driver's consumer is closed."""

    # Executed by the holder of the lock, in the thread or in the event loop.

    def commit(self) -> bool:
        """Request a commit if it is time, without waiting for it. Returns whether another will be due soon."""
        return False

    @property
    def room(self) -> int:
        """The prefetch minus the messages that are held."""
        return self.prefetch - self.read_count + self.mailbox.freed

    def allowed(self) -> int:
        """Return how many messages may be read now."""
        return self.room

    def assign(self, places: Sequence[TopicPartition]) -> None:
        """Start to read partitions, and report them."""
        partitions = [AssignedPartition(place.topic, place.partition) for place in places]
        self.partitions |= {partition.id: partition for partition in partitions}
        if places:
            self.driver.incremental_assign(list(places))
            self._update_pauses()
        self.post(self.listener.on_assigned, partitions)

    def remove(self, places: Sequence[TopicPartition]) -> list[AssignedPartition]:
        """Stop to track partitions; return those that were tracked."""
        partitions = [self.partitions.pop((place.topic, place.partition), None) for place in places]
        return [partition for partition in partitions if partition is not None]

    @property
    def is_in_loop(self) -> bool:
        return threading.current_thread() is not self._thread

    def post(self, event: Callable[..., None], *values: object) -> None:
        """Report an event in the event loop: at the end of :meth:`fetch` if called there, else as soon as possible."""
        self.mailbox.add_event(partial(event, *values))
        if not self.is_in_loop:
            try:
                self._loop.call_soon_threadsafe(self._handle_events)
            except RuntimeError:  # the loop is closed, so nobody handles events any more
                self.is_closing = True

    def _is_full(self) -> bool:
        return self.allowed() < self.min_room

    def _is_assigned(self, partition: AssignedPartition) -> bool:
        return self.partitions.get(partition.id) is partition

    def _report_messages(self, messages: Sequence[Message]) -> None:
        if batches := split_by_partition(messages, self.partitions, self._options, self._check_fatal):
            if count := sum(len(batch.offsets) for batch in batches):
                self._is_requested = False
                self.read_count += count
            self.post(self.listener.on_messages, batches)

    def _check_fatal(self, error: KafkaError) -> None:
        # Other errors pass: a topic may be created later, and brokers reconnect.
        if error.fatal() or error.code() in FATAL:
            raise to_bus_error(error, self.address.brokers, "Cannot read messages")

    def _map_failure(self, failure: Exception) -> BusError:
        return to_bus_error(get_error(failure), self.address.brokers, "Cannot read messages")

    def _update_pauses(self) -> None:
        """Pause and resume partitions, according to ``_full_since``, ``_is_held`` and ``is_rewound``."""
        is_full = self._full_since and time.monotonic() - self._full_since > _FULL_SECONDS
        changed: dict[bool, list[TopicPartition]] = {True: [], False: []}
        for partition in self.partitions.values():
            pause = bool(is_full or self._is_held or partition.is_rewound)
            if pause != partition.is_paused:
                partition.is_paused = pause
                changed[pause].append(TopicPartition(partition.topic, partition.number))
        if changed[True]:
            self.driver.pause(changed[True])
        if changed[False]:
            self.driver.resume(changed[False])
