"""A Bus within one process, for tests and for programs that need no broker.

    MemoryBroker ── groups: name ──► _MemoryQueue   ready    heap by priority, then by position (order of arrival)
                 │                                  held     unacknowledged
                 │                                  delayed  the delay, or the delay before a retry, has not passed
                 │                                  dead     dead letters
                 └─ broadcasts ────► _MemoryQueue   one for each subscriber without a group

Order by key: while a message is held, or waits for a retry, other messages with its key stay in the heap.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from itertools import count

import msgspec

from uttu.bus.backend import BaseBus, group_mismatch, group_not_found
from uttu.bus.base import (
    REASON_HEADER,
    Bus,
    BusAdmin,
    BusDescription,
    Capability,
    Delivery,
    Group,
    Message,
    SubscribeOptions,
    without_reason,
)
from uttu.bus.topics import matches
from uttu.clients import ConnectionListener, ConnectionListeners, ConnectionState

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

    def matches(self, message: Message) -> bool:
        where = self.options.where
        return matches(self.options.topics, message.topic) and (where is None or where.matches(message.headers))

    def put(self, delivery: Delivery) -> None:
        if delivery.delay > 0:
            self.delayed[delivery.position] = delivery
            asyncio.get_running_loop().call_later(delivery.delay, self._move_due, delivery)
        else:
            self._push(delivery)

    def requeue(self, delivery: Delivery) -> None:
        if self.held.pop(delivery.position, None) is not None:
            self._push(delivery)

    async def take(self, limit: int, held: Callable[[], int], prefetch: int) -> list[Delivery]:
        while True:
            deliveries = self._pop_ready(min(limit, prefetch - held()))
            if deliveries:
                return deliveries
            self._changed.clear()
            await self._changed.wait()

    def _pop_ready(self, room: int) -> list[Delivery]:
        """Return up to ``room`` messages, and hold them; skip messages whose key is busy (order by key)."""
        busy_keys = {delivery.key for delivery in self.held.values()}
        busy_keys |= {delivery.key for delivery in self.delayed.values() if delivery.attempt > 1}
        busy_keys -= {""}
        popped: list[Delivery] = []
        skipped: list[tuple[int, int, Delivery]] = []
        while self._ready and len(popped) < room:
            entry = heapq.heappop(self._ready)
            if entry[2].key in busy_keys:
                skipped.append(entry)
            else:
                popped.append(entry[2])
                if entry[2].attempt > 1:
                    busy_keys |= {entry[2].key} - {""}
        for entry in skipped:
            heapq.heappush(self._ready, entry)
        self.held |= {delivery.position: delivery for delivery in popped}
        return popped

    def release(self, delivery: Delivery) -> bool:
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

    def _move_due(self, delivery: Delivery) -> None:
        if self.delayed.pop(delivery.position, None) is not None:
            self._push(delivery)

    def _push(self, delivery: Delivery) -> None:
        heapq.heappush(self._ready, (-delivery.priority, int(delivery.position), delivery))
        self._changed.set()


class _MemoryConsumer:
    """See :class:`uttu.bus.backend.Consumer`."""

    def __init__(self, broker: MemoryBroker, options: SubscribeOptions) -> None:
        self._broker = broker
        self._queue = broker.open_queue(options)
        self._prefetch = options.prefetch
        self._held: dict[str, Delivery] = {}
        self._queue.subscribers += 1

    async def receive(self, limit: int) -> list[Delivery]:
        deliveries = await self._queue.take(limit, lambda: len(self._held), self._prefetch)
        self._held |= {delivery.position: delivery for delivery in deliveries}
        return deliveries

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        self._release(deliveries)

    async def retry(self, deliveries: Sequence[Delivery], delay: float) -> None:
        for delivery in self._release(deliveries):
            self._queue.put(msgspec.structs.replace(delivery, attempt=delivery.attempt + 1, delay=delay))

    async def dead_letter(self, deliveries: Sequence[Delivery], reason: str) -> None:
        for delivery in self._release(deliveries):
            headers = delivery.headers | {REASON_HEADER: reason}
            self._queue.dead.append(msgspec.structs.replace(delivery, headers=headers))

    def set_paused(self, paused: bool) -> None:
        """Do nothing: the consumer holds only what the consumer loop took."""

    async def close(self) -> None:
        for delivery in self._held.values():
            self._queue.requeue(delivery)
        self._held.clear()
        self._queue.subscribers -= 1
        if self._queue in self._broker.broadcasts:
            self._broker.broadcasts.remove(self._queue)

    def _release(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Stop holding deliveries; return those that the queue still had as held."""
        for delivery in deliveries:
            self._held.pop(delivery.position, None)
        return [delivery for delivery in deliveries if self._queue.release(delivery)]


class MemoryBroker:
    """The queues; buses created with the same broker exchange messages."""

    def __init__(self) -> None:
        self.groups: dict[str, _MemoryQueue] = {}
        self.broadcasts: list[_MemoryQueue] = []
        self._positions = count(1)

    def put(self, message: Message) -> None:
        for queue in (*self.groups.values(), *self.broadcasts):
            if queue.matches(message):
                fields = {name: getattr(message, name) for name in Message.__struct_fields__}
                queue.put(Delivery(**fields, position=str(next(self._positions))))

    def open_queue(self, options: SubscribeOptions) -> _MemoryQueue:
        if not options.group:
            queue = _MemoryQueue(options)
            self.broadcasts.append(queue)
            return queue
        queue = self.groups.setdefault(options.group, _MemoryQueue(options))
        known = queue.options
        if (set(known.topics), known.where) != (set(options.topics), options.where):
            raise group_mismatch(
                options.group, ", ".join(known.topics), f"{', '.join(options.topics)}, or has another filter"
            )
        return queue

    def republish(self, group: str, limit: int) -> int:
        queue = self.group(group)
        letters, queue.dead = queue.dead[:limit], queue.dead[limit:]
        for letter in letters:
            position, headers = str(next(self._positions)), without_reason(letter.headers)
            queue.put(msgspec.structs.replace(letter, attempt=1, delay=0.0, position=position, headers=headers))
        return len(letters)

    def group(self, name: str) -> _MemoryQueue:
        try:
            return self.groups[name]
        except KeyError:
            raise group_not_found(name) from None


class MemoryBus(BaseBus):
    """A bus in memory; see :class:`uttu.bus.base.Bus`.

    :param broker: connects this bus with others; by default it has a broker to itself.
    """

    capabilities = _CAPABILITIES

    def __init__(self, broker: MemoryBroker | None = None) -> None:
        super().__init__()
        self._broker = broker or MemoryBroker()
        self._listeners = ConnectionListeners()

    @classmethod
    async def connect(cls, url: str) -> MemoryBus:
        """A bus with a broker to itself; ``url`` is only ``memory:``."""
        return cls()

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

    async def describe(self) -> BusDescription:
        self._check_open()
        return BusDescription(kind="memory")

    async def republish(self, group: str, limit: int) -> int:
        self._check_open()
        return self._broker.republish(group, limit)

    def listen(self, listener: ConnectionListener) -> None:
        self._listeners.add(listener)

    async def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._broker.put(message)

    async def _open_consumer(self, options: SubscribeOptions) -> _MemoryConsumer:
        return _MemoryConsumer(self._broker, options)

    async def _disconnect(self) -> None:
        self._listeners.notify(ConnectionState.CLOSED, "closed")


_: type[Bus] = MemoryBus
_admin: type[BusAdmin] = MemoryBus
