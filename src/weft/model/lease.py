"""Temporary ownership of a request, and the three ways it ends."""

from __future__ import annotations

import msgspec

from weft.model.request import Request


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request that one worker owns until ``deadline`` (the frontier's clock).

    ``id`` only grows over the life of a crawl: it is the fencing token, and an outcome under a
    lease that was lost is refused. ``attempt`` is 1 on the first try. The fetch may start
    ``wait`` seconds after the lease was handed out, not earlier: that is the moment its lane
    becomes due.
    """

    id: int
    fingerprint: int
    lane: str
    request: Request
    attempt: int
    wait: float
    deadline: float


class Pace(msgspec.Struct, frozen=True):
    """How fast a lane may go: seconds between two requests, and how many at once (0: any number)."""

    delay: float
    limit: int


class _Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What all outcomes share.

    ``touched`` is the last moment, by ``time.monotonic()``, at which the host may have seen a
    request under this lease; the lane's delay counts from it. None if the host was not asked.
    ``pace`` is the lane's new pace, None to leave it.
    """

    lease: Lease
    touched: float | None = None
    pace: Pace | None = None


class Done(_Outcome, frozen=True, kw_only=True, gc=False):
    """Handled. ``children`` and ``items`` (JSON documents) are stored in the same step.

    ``note`` is kept for whoever asks later what became of the URL.
    """

    children: tuple[Request, ...] = ()
    items: tuple[bytes, ...] = ()
    status: int = 0
    size: int = 0
    note: str = ""


class Retry(_Outcome, frozen=True, kw_only=True, gc=False):
    """Again, ``after`` seconds. Not ``counted``: given back unharmed, the attempt did not happen."""

    after: float = 0.0
    reason: str = ""
    counted: bool = True


class Dead(_Outcome, frozen=True, kw_only=True, gc=False):
    """Given up. Kept with its reason, for the operator to look at and to retry.

    ``kind`` is one word for counting (``http``, ``dns``, ``timeout``, ``robots``, ``handler`` …),
    ``reason`` one line for reading, ``detail`` the traceback where there is one. What an
    ``on_error`` handler made of the failure, ``children`` and ``items``, is stored with it.
    """

    kind: str
    reason: str
    detail: str = ""
    status: int = 0
    children: tuple[Request, ...] = ()
    items: tuple[bytes, ...] = ()


Outcome = Done | Retry | Dead
