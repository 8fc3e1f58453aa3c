"""A request on its way: its lease, the three ways that ends, and what an operator sees of requests and lanes."""

from __future__ import annotations

from typing import Literal

import msgspec

from uttu.model.request import Request


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request that one worker owns until ``deadline`` (by the frontier's clock).

    ``id`` is the fencing token: it only grows over the life of a crawl, and the frontier refuses an outcome under a
    lost lease. ``attempt`` is 1 on the first try. The fetch may start ``wait`` seconds after the lease was handed out,
    when its lane becomes due.
    """

    id: int
    fingerprint: int
    lane: str
    request: Request
    attempt: int
    wait: float
    deadline: float


class Pace(msgspec.Struct, frozen=True):
    """The pace of a lane: seconds between two requests, and how many at once (0 for any number)."""

    delay: float
    limit: int


class _Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields that all outcomes share.

    ``touched`` is the last time, by ``time.monotonic()``, at which the host may have seen a request under this lease;
    the lane's delay counts from it. None if no request was sent. ``pace`` is the lane's new pace; None to keep it.
    """

    lease: Lease
    touched: float | None = None
    pace: Pace | None = None


class Done(_Outcome, frozen=True, kw_only=True, gc=False):
    """Handled. ``children`` and ``items`` (JSON documents) are stored in the same transaction.

    ``note`` is shown by ``uttu why``.
    """

    children: tuple[Request, ...] = ()
    items: tuple[bytes, ...] = ()
    status: int = 0
    size: int = 0
    note: str = ""


class Retry(_Outcome, frozen=True, kw_only=True, gc=False):
    """Try again ``after`` this many seconds. If not ``counted``, the request is given back and keeps its attempts."""

    after: float = 0.0
    reason: str = ""
    counted: bool = True


class Dead(_Outcome, frozen=True, kw_only=True, gc=False):
    """Given up. Kept as a dead letter, which the operator can inspect and retry.

    ``kind`` is one word for counting (``http``, ``dns``, ``timeout``, ``robots``, ``handler`` …), ``reason`` is one
    line, ``detail`` a traceback if there is one. The ``children`` and ``items`` that an ``on_error`` handler yielded
    are stored in the same transaction.
    """

    kind: str
    reason: str
    detail: str = ""
    status: int = 0
    children: tuple[Request, ...] = ()
    items: tuple[bytes, ...] = ()


Outcome = Done | Retry | Dead


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one request. ``state`` is ``unknown`` if it was never admitted."""

    state: Literal["unknown", "pending", "delayed", "leased", "done", "dead"]
    request: Request | None = None
    attempt: int = 0
    lane: str = ""
    worker: str = ""
    due: float = 0.0
    """When it may start, when its retry is due, or when its lease ends, depending on ``state``; the store's time."""
    at: float = 0.0
    """When it became done or dead; the store's time."""
    status: int = 0
    size: int = 0
    links: int = 0
    items: int = 0
    kind: str = ""
    reason: str = ""
    """Why it is dead or delayed, or why its lane is held."""
    detail: str = ""
    ahead: int = 0
    """How many requests are before it in its lane."""


class LaneState(msgspec.Struct, frozen=True, kw_only=True):
    """A lane and its current wait."""

    name: str
    pending: int
    active: int
    total: int
    pace: Pace
    wait: float
    """Seconds until it is due; 0 if it is due now."""
    reason: str = ""
    """Why it is held; empty if it is not."""
    pinned: bool = False
    """Whether an operator has set its pace."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A request that became dead, with the reason."""

    request: Request
    kind: str
    reason: str
    detail: str
    status: int
    attempt: int
    at: float
