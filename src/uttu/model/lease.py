"""A request on its way: its state, its lease, the three ways that ends, and what operators see of lanes."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec

from uttu.model.request import Request


class RequestState(StrEnum):
    """The state of a request in the frontier."""

    UNKNOWN = "unknown"
    """It was never admitted."""
    PENDING = "pending"
    """Ready in its lane."""
    DELAYED = "delayed"
    """Waiting for a retry."""
    LEASED = "leased"
    """Owned by a worker."""
    DONE = "done"
    DEAD = "dead"


class DeadKind(StrEnum):
    """The kinds of dead letters that the engine and the stores give. Fetchers and their errors add more."""

    HTTP = "http"
    """The host answered with an error status."""
    ROBOTS = "robots"
    """The site's robots.txt forbids it."""
    SCOPE = "scope"
    """The host is private."""
    REDIRECT = "redirect"
    MIDDLEWARE = "middleware"
    SPIDER = "spider"
    """The spider yielded a request or an item that can't be used."""
    HANDLER = "handler"
    """The handler failed, or its output can't be stored."""
    INTERNAL = "internal"
    """Uttu failed."""
    LOST = "lost"
    """Its workers died while they had it."""


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


class Redirect(msgspec.Struct, frozen=True, omit_defaults=True, rename={"target": "redirected_to"}):
    """The URL that a page redirected to. If it is not fetched, ``refused`` says why."""

    target: str
    refused: str = ""


class Done(_Outcome, frozen=True, kw_only=True, gc=False):
    """Handled. ``children`` and ``items`` (JSON documents) are stored in the same transaction.

    ``note`` is text that ``uttu why`` shows. A page that redirected has a ``redirect`` instead of a note.
    """

    children: tuple[Request, ...] = ()
    items: tuple[bytes, ...] = ()
    status: int = 0
    size: int = 0
    note: str = ""
    redirect: Redirect | None = None


class Retry(_Outcome, frozen=True, kw_only=True, gc=False):
    """Try again ``after`` this many seconds. If not ``counted``, the request is given back and keeps its attempts."""

    after: float = 0.0
    reason: str = ""
    counted: bool = True


class Dead(_Outcome, frozen=True, kw_only=True, gc=False):
    """Given up. Kept as a dead letter, which the operator can inspect and retry.

    ``kind`` is one word for counting: a :class:`DeadKind`, or the kind of a :class:`~uttu.errors.FetchError` (``dns``,
    ``timeout`` …). ``reason`` is one line, ``detail`` a traceback if there is one. The ``children`` and ``items`` that
    an ``on_error`` handler yielded are stored in the same transaction.
    """

    kind: str
    reason: str
    detail: str = ""
    status: int = 0
    children: tuple[Request, ...] = ()
    items: tuple[bytes, ...] = ()


Outcome = Done | Retry | Dead


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one request."""

    state: RequestState
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
    """Why it is dead or delayed, why its lane is held, or the note of a page that is done."""
    redirect: Redirect | None = None
    """Where the page redirected to, if it did."""
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


def encode_redirect(redirect: Redirect) -> str:
    """Return a redirect as the frontier stores it, in the place of the note."""
    return msgspec.json.encode(redirect).decode()


def decode_note(stored: str) -> tuple[str, Redirect | None]:
    """Return the note and the redirect of a page from what the frontier stores."""
    if stored.startswith(_REDIRECT):
        return "", msgspec.json.decode(stored, type=Redirect)
    # The version before stored a sentence.
    if former := _former_redirect(stored):
        return "", Redirect(former[1], former[2] or "")
    return stored, None


_REDIRECT: Final = '{"redirected_to":'
_former_redirect: Final = re.compile(r"redirected to (\S+?)(?:, which is not fetched: (.*))?", re.DOTALL).fullmatch
