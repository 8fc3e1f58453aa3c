"""The contract of a Bus.

    publish ──► topic ──┬──► each group that takes it ──► one of the group's subscribers
                        └──► each subscriber without a group

- **Topics** are words with dots between them; in what a subscriber takes, ``*`` stands for one word and ``#`` for any
  number, none included. See ``topics``.
- **Groups** share: each message goes to one subscriber of a group, and every group gets them all. A group begins with
  its first subscription and stays, with what waits in it, until it is forgotten; it takes what is published from then
  on. All subscribers of a group take the same topics by the same filter.
- Subscribers **without a group** each get every message that is published while they listen, once, and nothing else.
- **Acknowledgement** follows the handler: what it returned from is done, and what it raised for is handed out again,
  its ``attempt`` one higher, a little later. A batch that failed comes again message by message, so that a bad one does
  not take the others along. After so many attempts a message goes to the group's **dead letters**, with the reason; at
  once, if the handler rejects it (:class:`Rejected`).
- What a subscriber held when it died goes to another of the group, its attempt counted. So a handler may see a message
  more than once, also when the answer to a ``publish`` was lost and it was repeated: ``id`` tells.
- A subscriber holds ``prefetch`` messages at most, and handles one batch at a time.
- **Confirmed**: once ``publish`` returns, the broker has the messages as safely as it ever will (``DURABLE`` says
  whether that survives its own end). What no group takes and nobody listens to is gone, unless the broker keeps
  everything (``REPLAY``).
- What a broker can't do it refuses by the capability's name; nothing is silently different.
- Connections come back by themselves; listeners are told when one is lost and when it is back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from itertools import count
from math import isfinite
from typing import Literal, Protocol
from uuid import uuid4

import msgspec

from weft.bus.topics import check_group, check_pattern, check_topic
from weft.errors import Unsupported


class Capability(StrEnum):
    """What not every broker can do; the value says it in words."""

    DURABLE = "messages survive the end of the broker"
    ORDER_BY_KEY = "messages of one key are handled in order, however many subscribers a group has"
    REDELIVERY = "a message is handed out again without holding up those behind it"
    PRIORITY = "messages of a higher priority overtake others"
    DELAY = "messages are handed out some time after they were published"
    SERVER_FILTER = "filters on headers are applied by the broker, so that the rest does not travel"
    REPLAY = "a new group may start at the earliest message that is kept"
    FIXED_GROUPS = "a group's topics are kept by the broker, and a subscriber that takes others is refused"


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is published. ``id`` is given to it where it is empty.

    Messages with the same ``key`` belong together: see ``ORDER_BY_KEY``. ``priority`` is 0 to 9, 9 first; ``delay`` is
    in seconds. Header values are text.
    """

    topic: str
    payload: bytes = b""
    key: str = ""
    headers: dict[str, str] = {}
    id: str = ""
    priority: int = 0
    delay: float = 0.0


class Delivery(Message, frozen=True, kw_only=True, gc=False):
    """A message on its way through a handler. ``position`` is the broker's name for this delivery."""

    attempt: int = 1
    position: str = ""


class Where(msgspec.Struct, frozen=True):
    """A filter on headers: all of these values, or with ``any`` at least one of them."""

    headers: dict[str, str]
    any: bool = False

    def matches(self, headers: dict[str, str]) -> bool:
        found = (headers.get(name) == value for name, value in self.headers.items())
        return any(found) if self.any else all(found)


class Interest(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscriber takes, and how.

    ``batch`` messages at most are handed to the handler at once, ``prefetch`` are held at most, ``attempts`` is how
    often one is tried. ``start`` matters to a group that is new.
    """

    topics: tuple[str, ...]
    group: str = ""
    where: Where | None = None
    prefetch: int = 500
    batch: int = 100
    attempts: int = 5
    start: Literal["latest", "earliest"] = "latest"

    def __post_init__(self) -> None:
        if not self.topics:
            raise ValueError("a subscription needs a topic")
        for topic in self.topics:
            check_pattern(topic)
        if self.group:
            check_group(self.group)
        for name in ("prefetch", "batch", "attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group as it stands; None is what the broker does not tell.

    ``ready`` wait to be handed out, ``unacknowledged`` are with subscribers, ``delayed`` wait for their time, and
    ``dead`` are given up. The lag is what is not done yet.
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
        return self.ready + self.delayed + (self.unacknowledged or 0)


class Connection(StrEnum):
    UP = "connected"
    LOST = "lost, and being restored"
    CLOSED = "closed"


class Rejected(Exception):
    """Raised by a handler for messages that no further try would mend: they go to the dead letters at once.

    ``reasons`` has the reason of each by its ``position``. The rest of the batch is done.
    """

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


Handler = Callable[[list[Delivery]], Awaitable[None]]
Listener = Callable[[Connection, str], None]
"""Is told the state, and what happened."""


class Subscription(Protocol):
    """A subscriber at work."""

    interest: Interest
    handled: int
    """Messages that the handler returned from."""
    failed: int
    """Messages that it raised for."""
    last_error: str
    """What it raised last."""

    def pause(self) -> None:
        """Hand out nothing more; what the handler has goes on. Messages stay with the broker, but for ``prefetch``."""

    def resume(self) -> None: ...

    async def wait(self) -> None:
        """Until it is closed.

        :raises BusError: it can't go on.
        """

    async def close(self) -> None:
        """Let the handler end, give back the rest. A subscription can be closed from its own handler."""


class Bus(Protocol):
    """See the module for the promises."""

    capabilities: frozenset[Capability]

    async def publish(self, messages: Sequence[Message]) -> None:
        """Send messages, in this order; return when the broker has confirmed them all.

        :raises BusError: it has not; some may have arrived. To publish the same again is safe by their ``id``.
        :raises ValueError: a topic is none, or a priority or delay out of bounds.
        """

    async def subscribe(self, interest: Interest, handler: Handler) -> Subscription:
        """Hand messages to ``handler``; in force when this returns.

        :raises Unsupported: the broker lacks what is asked for.
        :raises BusRefused: the group takes other topics, or may not be used.
        """

    async def groups(self, *names: str) -> list[Group]:
        """How these groups stand, or all there are, by name.

        :raises BusRefused: a group that is named does not exist.
        """

    async def peek(self, group: str, limit: int = 10, *, dead: bool = False) -> list[Delivery]:
        """The messages that come next in a group, or its dead letters, without taking them.

        :raises BusRefused: there is no such group.
        """

    async def purge(self, group: str, *, dead: bool = False, forget: bool = False) -> int:
        """Throw away what waits in a group, or its dead letters; with ``forget`` the group with all it has.

        Returns how many messages that were. What subscribers hold is not touched, unless the group is forgotten.

        :raises BusRefused: there is no such group.
        """

    def listen(self, listener: Listener) -> None:
        """Tell ``listener`` of each change of the connection, from now on."""

    async def close(self) -> None:
        """Close all subscriptions and the connection; may be called again."""


def ids() -> Callable[[], str]:
    """Gives out ids for messages that have none: each a new one, and cheaply."""
    maker, numbers = uuid4().hex, count(1)
    return lambda: f"{maker}-{next(numbers):x}"


def checked(message: Message, capabilities: frozenset[Capability], give_id: Callable[[], str]) -> Message:
    """A message that can be sent, with an id.

    :raises ValueError: see :func:`check_message`.
    :raises Unsupported: it asks for what the broker lacks.
    """
    check_message(message)
    check_wishes(message, capabilities)
    return message if message.id else msgspec.structs.replace(message, id=give_id())


def check_wishes(message: Message, capabilities: frozenset[Capability]) -> None:
    """:raises Unsupported: it asks for what the broker lacks."""
    if message.priority:
        require(Capability.PRIORITY, capabilities)
    if message.delay:
        require(Capability.DELAY, capabilities)


def check_message(message: Message) -> None:
    """:raises ValueError: its topic is none, or its priority or delay out of bounds."""
    check_topic(message.topic)
    if not 0 <= message.priority <= 9:
        raise ValueError(f"a priority is 0 to 9, not {message.priority}")
    if not (isfinite(message.delay) and message.delay >= 0):
        raise ValueError(f"a delay is a number of seconds, not {message.delay}")


def require(capability: Capability, capabilities: frozenset[Capability]) -> None:
    """:raises Unsupported: it is not among them."""
    if capability not in capabilities:
        raise Unsupported(f"this broker lacks {capability.name}: {capability.value}")
