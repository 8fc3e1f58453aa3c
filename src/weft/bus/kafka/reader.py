"""Consumes, in a thread of its own, for one subscriber.

    thread                                        event loop
    the driver's consumer, the commits   runs ──►  the source: what is held, what is done
                                         ◄── free, rewind, go_on, hold, close

The driver allows one call at a time and blocks in it, so everything that concerns it is done here; what the loop wants
is put in a queue. The thread reads as much as there is room for, and tells the loop once for all of it.

While there is no room the driver is not asked at all, unless that lasts: then its partitions are paused, so that it can
be asked for news of the group without handing out messages. Pausing throws away what the driver has fetched ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from weft.bus.base import Delivery, Where
from weft.bus.kafka.address import Address
from weft.bus.kafka.errors import HOPELESS, the_error, told
from weft.bus.kafka.lane import Lane
from weft.bus.kafka.wire import delivery
from weft.errors import BusError

_IDLE_SECONDS: Final = 0.1  # in one call, with nothing to do
_BUSY_SECONDS: Final = 0.01  # while the handler works, and something may be to be committed soon
_FULL_SECONDS: Final = 0.2  # without room, until partitions are paused
_MOST_AT_ONCE: Final = 1000


class Run:
    """Messages that follow each other in one partition; ``seen`` is past those that were filtered out, too."""

    __slots__ = ("deliveries", "epoch", "lane", "offsets", "seen")

    def __init__(self, lane: Lane, deliveries: list[Delivery], offsets: list[int]) -> None:
        self.lane = lane
        self.epoch = lane.reading
        self.deliveries = deliveries
        self.offsets = offsets
        self.seen = -1

    @property
    def was_tried(self) -> bool:
        return self.deliveries[0].attempt > 1

    def cut(self, count: int) -> tuple[Run, Run]:
        """The first so many, and the rest."""
        return (
            Run(self.lane, self.deliveries[:count], self.offsets[:count]),
            Run(self.lane, self.deliveries[count:], self.offsets[count:]),
        )


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
        self._taker = taker
        self._where = where
        self.prefetch = prefetch
        self.enough = max(1, prefetch // 4)  # to read for less costs more than it brings
        self.portion = min(_MOST_AT_ONCE, max(1, prefetch // 2))  # so that reading and handling overlap
        self.room = prefetch
        self._held = False
        self._full_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._later: list[Callable[[], None]] = []
        """Orders that could not be done yet."""
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

    def free(self, count: int) -> None:
        """So many that were read are no longer held, and positions may have moved."""
        self.order(partial(self.freed, count))

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

    # What a subclass does, in the thread.

    @abstractmethod
    def begin(self) -> None:
        """Come by partitions."""

    @abstractmethod
    def tend(self) -> None:
        """Called again and again."""

    def freed(self, count: int) -> None:
        """There is room for so many more."""
        self.room += count

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
        self.tell(self._taker.assigned, lanes)

    def drop(self, places: Sequence[TopicPartition]) -> list[Lane]:
        """Those of them that were read."""
        lanes = [self.lanes.pop((place.topic, place.partition), None) for place in places]
        return [lane for lane in lanes if lane is not None]

    def _reads(self, lane: Lane) -> bool:
        return self.lanes.get((lane.topic, lane.partition)) is lane

    def tell(self, what: Callable[..., None], *values: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *values)
        except RuntimeError:  # the loop is closed: whoever had it is gone
            self.closing = True

    # The thread.

    def _run(self) -> None:
        error: BusError | None = None
        try:
            self.consumer = Consumer(self._settings)
            self.begin()
            while not self.closing:
                self._obey()
                self.tend()
                self._read()
        except KafkaException as failure:
            error = told(the_error(failure), self.address.brokers, "can't read on")
        except BusError as failure:
            error = failure
        finally:
            self._end()
            self.tell(self._taker.ended, error)

    def _end(self) -> None:
        self.closing = True
        with contextlib.suppress(KafkaException, AttributeError, RuntimeError):
            self.leave()
        with contextlib.suppress(KafkaException, AttributeError, RuntimeError):
            self.consumer.close()

    def _obey(self, seconds: float = 0.0) -> None:
        """Do what is asked for; waits so long for something."""
        later, self._later = self._later, []
        for order in later:
            order()
        with contextlib.suppress(queue.Empty):
            if seconds:
                self._orders.get(timeout=seconds)()
            while True:
                self._orders.get_nowait()()

    def _read(self) -> None:
        if self.allowed() < self.enough:
            now = time.monotonic()
            self._full_since = self._full_since or now
            if now - self._full_since > _FULL_SECONDS:
                self._flow()
                self.take_in(self.consumer.poll(0))
            self._obey(_IDLE_SECONDS / 2)
            return
        if self._full_since:
            self._full_since = 0.0
            self._flow()
        self.take_in(self.consumer.poll(_IDLE_SECONDS if self.room == self.prefetch else _BUSY_SECONDS))

    def take_in(self, first: Message | None) -> None:
        if first is None:
            return
        messages = [first]
        if (most := min(self.allowed(), self.portion)) > 1:
            messages += self.consumer.consume(most - 1, 0)
        if runs := self._runs(messages):
            self.room -= sum(len(run.deliveries) for run in runs)
            self.tell(self._taker.arrived, runs)

    def _runs(self, messages: Sequence[Message]) -> list[Run]:
        runs: list[Run] = []
        run: Run | None = None
        at_topic = at_partition = None
        where = self._where
        for message in messages:
            if error := message.error():
                self._trouble(error)
                continue
            partition, topic, offset = message.partition(), message.topic(), message.offset()
            if partition != at_partition or topic != at_topic:
                at_partition, at_topic = partition, topic
                lane = self.lanes.get((topic, partition))  # type: ignore[arg-type]
                run = Run(lane, [], []) if lane is not None else None
                if run is not None:
                    runs.append(run)
            if run is None or offset is None:  # the partition was taken from us while this was being read
                continue
            run.seen = offset + 1
            taken = delivery(message, run.lane.topic, run.lane.place, offset)
            if where is None or where.matches(taken.headers):
                run.deliveries.append(taken)
                run.offsets.append(offset)
        return runs

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
