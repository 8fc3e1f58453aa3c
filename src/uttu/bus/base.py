"""The contract of a Bus.

    publish ──► topic ──┬──► each group subscribed to it ──► one of the group's subscribers
                        └──► each subscriber without a group

- **Topics** are words separated by dots. In a subscription ``*`` stands for one word and ``#`` for zero or more words.
  See :mod:`uttu.bus.topics`.
- **Groups** share messages: every group gets every message of its topics, and within a group each message goes to one
  subscriber. The first subscription creates the group. It receives messages published from then on, and it exists,
  with its queued messages, until :meth:`Bus.purge` deletes it (``forget``). All subscribers of a group must have the
  same topics and the same header filter.
- Subscribers **without a group** (broadcast) each get every message published while they are subscribed, at most once.
- **Acknowledgement** follows the handler. If it returns, its batch is done. If it raises, the messages are delivered
  again after a delay, with ``attempt`` one higher and each in a batch by itself, so that one bad message does not fail
  the others. After ``attempts`` failures a message moves to the group's **dead letters**, with the reason. If the
  handler rejects a message (:class:`Rejected`), it moves there at once.
- **At least once**: if a subscriber dies, its unacknowledged messages go to another subscriber of the group, with
  ``attempt`` one higher. A message may also be published twice, if the answer to ``publish`` was lost and the call was
  repeated. So a handler may see a message more than once; ``id`` identifies it.
- A subscriber holds at most ``prefetch`` messages, and handles one batch at a time.
- **Confirmation**: when ``publish`` returns, the broker has stored the messages; with ``DURABLE`` they survive its
  restart. A message without a group or a subscriber for it is dropped, unless the broker keeps all messages
  (``REPLAY``).
- **Capabilities**: a request for a feature that the broker lacks raises ``Unsupported`` with the capability's name. No
  feature is silently ignored.
- A lost connection is restored automatically. Listeners are called when it is lost and when it is back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from itertools import count
from math import isfinite
from typing import Final, Literal, Protocol, runtime_checkable
from uuid import uuid4

import msgspec

from uttu.bus.topics import check_group, check_pattern, check_topic
from uttu.clients import ConnectionListener
from uttu.errors import Unsupported

REASON_HEADER: Final = "uttu-reason"
"""The header of a dead letter that contains the reason."""


def without_reason(headers: dict[str, str]) -> dict[str, str]:
    """The headers of a dead letter without the reason."""
    return {name: value for name, value in headers.items() if name != REASON_HEADER}


class Capability(StrEnum):
    """A feature that not every broker has; the value describes it to users."""

    DURABLE = "messages survive a restart of the broker"
    ORDER_BY_KEY = "messages of one key are handled in order, however many subscribers a group has"
    REDELIVERY = "a failed message is delivered again without delaying the messages behind it"
    PRIORITY = "messages with a higher priority overtake others"
    DELAY = "messages are delivered some time after they were published"
    SERVER_FILTER = "the broker applies header filters, and sends only messages that match"
    REPLAY = "a new group may start at the earliest stored message"
    FIXED_GROUPS = "the broker stores the topics of a group, and refuses a subscriber with other topics"


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message to publish.

    :param key: messages with the same key stay in order if the broker has ``ORDER_BY_KEY``.
    :param id: identifies the message; if empty, ``publish`` or the broker assigns one.
    :param priority: 0 to 9; 9 is delivered first.
    :param delay: seconds from ``publish`` to delivery.
    """

    topic: str
    payload: bytes = b""
    key: str = ""
    headers: dict[str, str] = {}
    id: str = ""
    priority: int = 0
    delay: float = 0.0


class Delivery(Message, frozen=True, kw_only=True, gc=False):
    """A message as a handler receives it.

    :param attempt: 1 for the first delivery, one higher for each redelivery.
    :param position: identifies the delivery within its subscription; the format depends on the broker.
    """

    attempt: int = 1
    position: str = ""


class HeaderFilter(msgspec.Struct, frozen=True):
    """A filter on headers: a message must have all of these values or, with ``any``, at least one of them."""

    headers: dict[str, str]
    any: bool = False

    def matches(self, headers: dict[str, str]) -> bool:
        equal = (headers.get(name) == value for name, value in self.headers.items())
        return any(equal) if self.any else all(equal)


class SubscribeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a subscription.

    :param topics: topics or patterns of topics.
    :param group: empty for a subscriber without a group.
    :param where: a filter on headers.
    :param prefetch: maximum number of unacknowledged messages of this subscriber.
    :param batch: maximum number of messages in one call of the handler.
    :param attempts: how many times a message is tried before it becomes a dead letter.
    :param start: where a new group begins: ``earliest`` (needs ``REPLAY``) or ``latest``.
    :raises ValueError: a topic or group is not a valid name, or a number is less than 1.
    """

    topics: tuple[str, ...]
    group: str = ""
    where: HeaderFilter | None = None
    prefetch: int = 500
    batch: int = 100
    attempts: int = 5
    start: Literal["latest", "earliest"] = "latest"

    def __post_init__(self) -> None:
        if not self.topics:
            raise ValueError("A subscription needs at least one topic")
        for topic in self.topics:
            check_pattern(topic)
        if self.group:
            check_group(self.group)
        for name in ("prefetch", "batch", "attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a group; a field is None if the broker does not report it.

    :param ready: messages that wait for delivery.
    :param unacknowledged: messages that subscribers hold.
    :param delayed: messages whose delay, or delay before a retry, has not passed.
    :param dead: dead letters.
    """

    name: str
    topics: tuple[str, ...] | None = None
    ready: int = 0
    unacknowledged: int | None = None
    delayed: int = 0
    dead: int = 0
    subscribers: int | None = None

    @property
    def lag(self) -> int:
        """Messages that are not handled yet: ready, delayed and unacknowledged."""
        return self.ready + self.delayed + (self.unacknowledged or 0)


class Rejected(Exception):
    """Raised by a handler for messages that a retry would not fix: they become dead letters at once.

    :param reasons: the ``position`` of each rejected message, and the reason. The rest of the batch counts as handled.
    """

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


Handler = Callable[[list[Delivery]], Awaitable[None]]


class Subscription(Protocol):
    """A running subscription."""

    options: SubscribeOptions
    handled: int
    """Number of messages in batches for which the handler returned."""
    failed: int
    """Number of messages for which it raised an exception, retries included."""
    last_error: str
    """The last exception of the handler, as text."""

    def pause(self) -> None:
        """Start no further batch; the current one continues. At most ``prefetch`` messages are held meanwhile."""

    def resume(self) -> None: ...

    async def wait(self) -> None:
        """Return when the subscription is closed.

        :raises BusError: the subscription has failed and can't continue.
        """

    async def close(self) -> None:
        """Wait for the handler to finish its batch, and return all other messages to the broker.

        The handler itself may call this.
        """


class Bus(Protocol):
    """A connection to a broker. The module's docstring states the guarantees."""

    capabilities: frozenset[Capability]

    async def publish(self, messages: Sequence[Message]) -> None:
        """Send messages in this order; return when the broker has confirmed all of them.

        :raises BusError: not all were confirmed, and some may have arrived. The call may be repeated: subscribers
            recognise duplicates by ``id``.
        :raises Unsupported: a priority or a delay is set, and the broker lacks the capability.
        :raises ValueError: a topic is not a valid name, or a priority or delay is out of range.
        """

    async def subscribe(self, options: SubscribeOptions, handler: Handler) -> Subscription:
        """Call ``handler`` with batches of messages. The subscription is active when this returns.

        :raises Unsupported: the broker lacks a capability that the options need.
        :raises BusRefused: the group exists with other topics or another filter, or access is denied.
        """

    async def groups(self, *names: str) -> list[Group]:
        """Return the state of these groups, or of all groups, sorted by name.

        :raises BusRefused: a named group does not exist.
        """

    async def peek(self, group: str, limit: int = 10, *, dead: bool = False) -> list[Delivery]:
        """Return the next messages of a group, or its dead letters, without consuming them.

        :raises BusRefused: the group does not exist.
        """

    async def purge(self, group: str, *, dead: bool = False, forget: bool = False) -> int:
        """Delete the waiting messages of a group, or its dead letters; with ``forget`` the whole group.

        Returns the number of deleted messages. Unacknowledged messages are not deleted, except with ``forget``.

        :raises BusRefused: the group does not exist.
        """

    def listen(self, listener: ConnectionListener) -> None:
        """Call ``listener`` at each change of the connection's state from now on."""

    async def close(self) -> None:
        """Close all subscriptions and the connection. Further calls do nothing."""


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that the broker knows; a field is None if the broker does not report it."""

    name: str
    messages: int | None = None
    bytes: int | None = None


Cell = str | int | None


class DetailTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of what only one kind of broker has, such as exchanges or partitions."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


class BusDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says about itself.

    :param kind: the technology: ``redis``, ``rabbitmq``, ``kafka``, ``memory``.
    :param nodes: the servers.
    :param note: what is missing in this description, and how to get it.
    """

    kind: str
    version: str = ""
    nodes: tuple[str, ...] = ()
    topics: list[TopicState] = []
    tables: list[DetailTable] = []
    note: str = ""


@runtime_checkable
class BusAdmin(Protocol):
    """What a broker's own console is used for. Every built-in bus has it; others may leave it out."""

    async def describe(self) -> BusDescription:
        """Describe the broker: its version, its topics, and what only this kind of broker has."""

    async def republish(self, group: str, limit: int) -> int:
        """Return up to ``limit`` dead letters to the end of their group, with the attempts reset; the oldest first.

        Other groups don't get them again. Returns how many the broker has confirmed; those are no longer dead letters.
        If the call is cut short, a message may be in both places.

        :raises BusRefused: the group does not exist.
        """


def make_id_generator() -> Callable[[], str]:
    """Return a function that returns a new message id at each call: one random prefix, and a counter."""
    prefix, numbers = uuid4().hex, count(1)
    return lambda: f"{prefix}-{next(numbers):x}"


def prepare_message(message: Message, capabilities: frozenset[Capability], generate_id: Callable[[], str]) -> Message:
    """Validate a message, and return it with an id.

    :raises ValueError: see :func:`check_message`.
    :raises Unsupported: see :func:`check_capabilities`.
    """
    check_message(message)
    check_capabilities(message, capabilities)
    return message if message.id else msgspec.structs.replace(message, id=generate_id())


def check_capabilities(message: Message, capabilities: frozenset[Capability]) -> None:
    """Check that the broker supports the message's priority and delay.

    :raises Unsupported: ``PRIORITY`` or ``DELAY`` is needed and not among the capabilities.
    """
    if message.priority:
        require_capability(Capability.PRIORITY, capabilities)
    if message.delay:
        require_capability(Capability.DELAY, capabilities)


def check_message(message: Message) -> None:
    """Check the fields of a message.

    :raises ValueError: the topic is not a valid name, the priority is not in 0–9, or the delay is negative or infinite.
    """
    check_topic(message.topic)
    if not 0 <= message.priority <= 9:
        raise ValueError(f"The priority of a message must be 0 to 9, not {message.priority}")
    if not (isfinite(message.delay) and message.delay >= 0):
        raise ValueError(f"The delay of a message must be seconds, 0 or more, not {message.delay}")


def require_capability(capability: Capability, capabilities: frozenset[Capability]) -> None:
    """:raises Unsupported: ``capability`` is not among ``capabilities``."""
    if capability not in capabilities:
        raise Unsupported(f"This broker lacks {capability.name}: {capability.value}")
