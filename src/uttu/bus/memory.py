"""A Bus within one process, for tests and for programs that need no broker.

    MemoryBroker ── groups: name ──► _MemoryQueue   ready    heap by priority, then by position (order of arrival)
                 │                                  held     unacknowledged
                 │                                  delayed  the delay, or the delay before a retry, has not passed
                 │                                  dead     dead letters
                 └─ listeners ─────► _MemoryQueue   one for each subscriber without a group

Order by key: while a message is held, or waits for a retry, other messages with its key stay in the heap.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from itertools import count

import msgspec

from uttu.bus.base import (
    Bus,
    Capability,
    Delivery,
    Group,
    Handler,
    Message,
    SubscribeOptions,
    Subscription,
    make_id_generator,
    prepare_message,
    require_capability,
)
from uttu.bus.consumer import REASON_HEADER, ConsumerLoop
from uttu.bus.topics import matches
from uttu.clients import ConnectionListener, ConnectionState
from uttu.errors import BusError, BusRefused

_CAPABILITIES = frozenset(
    {
        Capability.ORDER_BY_KEY,
        Capability.REDELIVERY,
        Capability.PRIORITY,
        Capability.DELAY,
        Capability.SERVER_FILTER,
        Capability.FIXED_GROUPS,
    }
)


class _MemoryQueue:
    """The messages of one group, or of one subscriber without a group."""

    def __init__(self, options: SubscribeOptions) -> None:
        self.options = options
        self.held: dict[str, Delivery] = {}
        self.delayed: dict[str, Delivery] = {}
        self.dead: list[Delivery] = []
        self.subscribers = 0
        self._ready: list[tuple[int, int, Delivery]] = []
        self._changed = asyncio.Event()

    def takes(self, message: Message) -> bool:
        where = self.options.where
        return matches(self.options.topics, message.topic) and (where is None or where.matches(message.headers))

    def put(self, delivery: Delivery) -> None:
        if delivery.delay > 0:
            self.delayed[delivery.position] = delivery
            asyncio.get_running_loop().call_later(delivery.delay, self._due, delivery)
        else:
            self._enter(delivery)

    def give_back(self, delivery: Delivery) -> None:
        if self.held.pop(delivery.position, None) is not None:
            self._enter(delivery)

    async def take(self, limit: int, held: Callable[[], int], prefetch: int) -> list[Delivery]:
        while True:
            taken = self._pick(min(limit, prefetch - held()))
            if taken:
                return taken
            self._changed.clear()
            await self._changed.wait()

    def _pick(self, room: int) -> list[Delivery]:
        busy = {delivery.key for delivery in self.held.values()}
        busy |= {delivery.key for delivery in self.delayed.values() if delivery.attempt > 1}
        busy -= {""}
        taken: list[Delivery] = []
        passed: list[tuple[int, int, Delivery]] = []
        while self._ready and len(taken) < room:
            entry = heapq.heappop(self._ready)
            if entry[2].key in busy:
                passed.append(entry)
            else:
                taken.append(entry[2])
                if entry[2].attempt > 1:
                    busy |= {entry[2].key} - {""}
        for entry in passed:
            heapq.heappush(self._ready, entry)
        self.held |= {delivery.position: delivery for delivery in taken}
        return taken

    def end(self, delivery: Delivery) -> bool:
        """Remove a delivery from the held ones; return whether it was still there."""
        self._changed.set()
        return self.held.pop(delivery.position, None) is not None

    def ready(self) -> list[Delivery]:
        return [entry[2] for entry in sorted(self._ready)]

    def clear(self) -> int:
        size = len(self._ready) + len(self.delayed)
        self._ready.clear()
        self.delayed.clear()
        return size

    def _due(self, delivery: Delivery) -> None:
        if self.delayed.pop(delivery.position, None) is not None:
            self._enter(delivery)

    def _enter(self, delivery: Delivery) -> None:
        heapq.heappush(self._ready, (-delivery.priority, int(delivery.position), delivery))
        self._changed.set()


class _MemoryConsumer:
    """See :class:`uttu.bus.consumer.Consumer`."""

    def __init__(self, queue: _MemoryQueue, options: SubscribeOptions) -> None:
        self._queue = queue
        self._prefetch = options.prefetch
        self._mine: dict[str, Delivery] = {}
        queue.subscribers += 1

    async def receive(self, limit: int) -> list[Delivery]:
        taken = await self._queue.take(limit, lambda: len(self._mine), self._prefetch)
        self._mine |= {delivery.position: delivery for delivery in taken}
        return taken

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        self._end(deliveries)

    async def again(self, deliveries: Sequence[Delivery], after: float) -> None:
        for delivery in self._end(deliveries):
            self._queue.put(msgspec.structs.replace(delivery, attempt=delivery.attempt + 1, delay=after))

    async def bury(self, deliveries: Sequence[Delivery], reason: str) -> None:
        for delivery in self._end(deliveries):
            headers = delivery.headers | {REASON_HEADER: reason}
            self._queue.dead.append(msgspec.structs.replace(delivery, headers=headers))

    def hold(self, paused: bool) -> None:
        pass

    async def close(self) -> None:
        for delivery in self._mine.values():
            self._queue.give_back(delivery)
        self._mine.clear()
        self._queue.subscribers -= 1

    def _end(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        for delivery in deliveries:
            self._mine.pop(delivery.position, None)
        return [delivery for delivery in deliveries if self._queue.end(delivery)]


class MemoryBroker:
    """The queues; buses created with the same broker exchange messages."""

    def __init__(self) -> None:
        self.groups: dict[str, _MemoryQueue] = {}
        self.listeners: list[_MemoryQueue] = []
        self._positions = count(1)

    def put(self, message: Message) -> None:
        for queue in (*self.groups.values(), *self.listeners):
            if queue.takes(message):
                fields = {name: getattr(message, name) for name in Message.__struct_fields__}
                queue.put(Delivery(**fields, position=str(next(self._positions))))

    def queue_for(self, options: SubscribeOptions) -> _MemoryQueue:
        if not options.group:
            queue = _MemoryQueue(options)
            self.listeners.append(queue)
            return queue
        queue = self.groups.setdefault(options.group, _MemoryQueue(options))
        known = queue.options
        if (set(known.topics), known.where) != (set(options.topics), options.where):
            raise BusRefused(
                f"the group {options.group} takes {', '.join(known.topics)}, not {', '.join(options.topics)}, or by "
                "another filter; use another name, or forget the group first"
            )
        return queue

    def group(self, name: str) -> _MemoryQueue:
        try:
            return self.groups[name]
        except KeyError:
            raise BusRefused(f"there is no group {name}") from None


class MemoryBus:
    """A bus in memory; see :class:`uttu.bus.base.Bus`.

    :param broker: connects this bus with others; by default it has a broker to itself.
    """

    capabilities = _CAPABILITIES

    def __init__(self, broker: MemoryBroker | None = None) -> None:
        self._broker = broker or MemoryBroker()
        self._subscriptions: set[ConsumerLoop] = set()
        self._listeners: list[ConnectionListener] = []
        self._closed = False
        self._new_id = make_id_generator()

    @classmethod
    async def connect(cls, url: str) -> MemoryBus:
        """A bus with a broker to itself; ``url`` is only ``memory:``."""
        return cls()

    async def publish(self, messages: Sequence[Message]) -> None:
        self._check_open()
        for message in [prepare_message(message, self.capabilities, self._new_id) for message in messages]:
            self._broker.put(message)

    async def subscribe(self, options: SubscribeOptions, handler: Handler) -> Subscription:
        self._check_open()
        if options.start == "earliest":
            require_capability(Capability.REPLAY, self.capabilities)
        queue = self._broker.queue_for(options)

        def ended(pump: ConsumerLoop) -> None:
            self._subscriptions.discard(pump)
            if queue in self._broker.listeners:
                self._broker.listeners.remove(queue)

        pump = ConsumerLoop(options, handler, _MemoryConsumer(queue, options), ended)
        self._subscriptions.add(pump)
        return pump

    async def groups(self, *names: str) -> list[Group]:
        self._check_open()
        chosen = {name: self._broker.group(name) for name in names or self._broker.groups}
        return [
            Group(
                name=name,
                topics=queue.options.topics,
                ready=len(queue.ready()),
                unacknowledged=len(queue.held),
                delayed=len(queue.delayed),
                dead=len(queue.dead),
                subscribers=queue.subscribers,
            )
            for name, queue in sorted(chosen.items())
        ]

    async def peek(self, group: str, limit: int = 10, *, dead: bool = False) -> list[Delivery]:
        self._check_open()
        queue = self._broker.group(group)
        return (queue.dead if dead else queue.ready())[:limit]

    async def purge(self, group: str, *, dead: bool = False, forget: bool = False) -> int:
        self._check_open()
        queue = self._broker.group(group)
        size = 0
        if dead or forget:
            size += len(queue.dead)
            queue.dead.clear()
        if not dead or forget:
            size += queue.clear()
        if forget:
            size += len(queue.held)
            queue.held.clear()
            del self._broker.groups[group]
        return size

    def listen(self, listener: ConnectionListener) -> None:
        self._listeners.append(listener)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*[pump.close() for pump in self._subscriptions])
        for listener in self._listeners:
            listener(ConnectionState.CLOSED, "closed")

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")


_: type[Bus] = MemoryBus
