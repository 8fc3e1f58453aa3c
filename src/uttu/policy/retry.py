"""Decide after a failed attempt: retry or give up, when, and whether to hold the whole host.

    throttled    429, 503, 529: the host asks for less. Longer waits and more attempts (it is not the page's fault);
                 the lane is held, so no other page of the host is requested in the meantime
    server       408, 500, 502, 504, 520-524 and similar: probably gone next time
    network      refused, connection closed, too slow, not HTTP: the same
    dns          one more attempt; a name that fails to resolve twice does not exist
    the rest     never: TLS errors, bodies that are too large, and any other 4xx or 5xx fail the same way every time

robots.txt is different (:func:`decide_robots`): until it is known nothing of the site may be requested, so the lane is
held, and its attempts are counted for the site, not for a page.

A host may ask for more time than the crawl has (``Retry-After: 31536000``). If it asks for more than ``longest``
seconds, the page is given up with that reason and the host's lane is closed: its other pages are given up without a
request until the time is over. The same happens if the waits add up to more than ``longest`` with no other answer
between them. :class:`uttu.engine.throttled_hosts.ThrottledHosts` keeps this per worker.

The wait doubles with every attempt up to a cap. It is spread by ``roll``, a random number in [0, 1) drawn by the
caller, so that pages that failed together do not come back together.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from uttu.errors import BadResponse, FetchError, NetworkError, TLSError, TooSlow, UnknownHost

THROTTLED: Final = frozenset({429, 503, 529})
SERVER: Final = frozenset({408, 500, 502, 504, *range(520, 525), 598, 599})

THROTTLED_TRIES: Final = 3
"""A page of a throttling host is retried this many times as often as ``retries`` says."""
THROTTLED_BASE: Final = 5.0
"""The first wait is this many times ``base`` if a throttling host sends no Retry-After."""
DNS_RETRIES: Final = 1
MAX_RETRY_AFTER: Final = 3600.0
"""Default of the setting ``max_retry_after``: the longest Retry-After to wait for, in seconds."""

_seconds: Final = re.compile(r"[0-9]+(?:\.[0-9]{0,9})?").fullmatch


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often and how long to wait.

    ``retries`` come on top of the first attempt. Waits start at ``base`` seconds, double each time, and are ``cap`` at
    most. Each is shortened by a random share of up to ``jitter``. If a host asks to wait more than ``longest`` seconds,
    the page is given up instead.
    """

    retries: int = 3
    base: float = 1.0
    cap: float = 300.0
    jitter: float = 0.5
    longest: float = MAX_RETRY_AFTER


class Verdict(msgspec.Struct, frozen=True):
    """The decision after a failed attempt.

    ``retry``: try again ``after`` this many seconds. ``hold``: hold the lane for this many seconds; 0 for not at all.
    ``too_long``: the seconds that the host asked to wait, if the page is given up for that. ``closed``: all pages of
    the host are given up for that time.
    """

    retry: bool
    after: float = 0.0
    hold: float = 0.0
    too_long: float = 0.0
    closed: bool = False


GIVE_UP: Final = Verdict(retry=False)
_ROBOTS: Final = RetryPolicy()


def backoff(policy: RetryPolicy, attempt: int, roll: float, base: float | None = None) -> float:
    """Seconds to wait after attempt number ``attempt``; the first attempt is 1."""
    doublings = min(max(attempt - 1, 0), 64)
    full = min((policy.base if base is None else base) * 2.0**doublings, policy.cap)
    return full * (1.0 - policy.jitter * roll)


def decide_status(
    policy: RetryPolicy, attempt: int, status: int, retry_after: float | None, roll: float
) -> Verdict | None:
    """Decide after a response; None if a status like this one is never retried.

    ``retry_after`` is obeyed; if it is longer than the policy's ``longest``, the page is given up. The lane of a
    throttling host is held even if this page has no attempts left.
    """
    if retry_after is not None and retry_after > policy.longest and (status in THROTTLED or status in SERVER):
        return Verdict(retry=False, too_long=retry_after, closed=status in THROTTLED)
    if status in THROTTLED:
        wait = _wait(policy, attempt, retry_after, roll, policy.base * THROTTLED_BASE)
        again = attempt <= policy.retries * THROTTLED_TRIES
        return Verdict(retry=again, after=wait if again else 0.0, hold=wait)
    if status in SERVER:
        if attempt > policy.retries:
            return GIVE_UP
        return Verdict(retry=True, after=_wait(policy, attempt, retry_after, roll, policy.base))
    return None


def decide_error(policy: RetryPolicy, attempt: int, error: FetchError, roll: float) -> Verdict:
    """Decide after a fetch without a response. Errors of other classes than those below are not retried."""
    retries = policy.retries
    match error:
        case TLSError():
            return GIVE_UP
        case UnknownHost():
            retries = min(retries, DNS_RETRIES)
        case NetworkError() | TooSlow() | BadResponse():
            pass
        case _:
            return GIVE_UP
    if attempt > retries:
        return GIVE_UP
    return Verdict(retry=True, after=backoff(policy, attempt, roll))


def decide_robots(
    tries: int, failure: FetchError | int, retry_after: float | None, roll: float, longest: float = MAX_RETRY_AFTER
) -> Verdict:
    """Decide after attempt number ``tries`` for a robots.txt.

    The number of attempts is the default for pages, whatever the setting ``retries`` says: with none, one temporary
    error would close a site, and with many, a dead site would keep the crawl from ending. Every status that does not
    throttle is treated like a 500. The lane is held while attempts are left. After the last one it is not, so that the
    waiting pages are given up at once.

    :param failure: The error, or the status of the response.
    """
    if isinstance(failure, FetchError):
        verdict = decide_error(_ROBOTS, tries, failure, roll)
    else:
        status = failure if failure in THROTTLED else 500
        policy = RetryPolicy(longest=longest)
        verdict = decide_status(policy, tries, status, retry_after, roll) or GIVE_UP
    if not verdict.retry:
        return Verdict(retry=False, too_long=verdict.too_long)
    return Verdict(retry=True, after=verdict.after, hold=max(verdict.hold, verdict.after))


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """The seconds from ``now`` (UTC) that a Retry-After header asks for; None if it is invalid or in the past.

    The header is a number or a date. The result may be years, or infinity: see :func:`decide_status`.
    """
    value = (value or "").strip()
    if _seconds(value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    seconds = (_aware(date) - _aware(now)).total_seconds()
    return seconds if seconds >= 0 else None


def format_seconds(seconds: float) -> str:
    """Format a time span for a message: ``365 days``."""
    if seconds == math.inf:
        return "an endless time"
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:g} seconds"


def _aware(moment: datetime) -> datetime:
    # The two obsolete date formats that HTTP allows have no time zone; the standard says UTC.
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _wait(policy: RetryPolicy, attempt: int, retry_after: float | None, roll: float, base: float) -> float:
    if retry_after is None:
        return backoff(policy, attempt, roll, base)
    # Hosts that send "0" mean "soon", so wait ``base`` seconds at least.
    return max(retry_after, policy.base)
