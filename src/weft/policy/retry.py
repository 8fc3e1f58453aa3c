"""What to do after a try that failed: again, when, and whether its whole host should rest.

    throttled    429, 503, 529: the host asks for less. Waits longer, may try more often (it is
                 not the page's fault), and the lane is held, so that no other page asks meanwhile
    server       500, 502, 504, 520-524 and kin, 408: probably gone next time
    network      refused, hung up, too slow, not HTTP: the same
    dns          once more; a name that does not resolve twice does not exist
    the rest     never: TLS, too large, any other 4xx or 5xx give the same answer every time

A site's robots.txt is another matter (:func:`decide_robots`): until it is known nothing of the site may be
asked, so its lane is held, and its tries are the site's own, whatever a page may have.

The wait doubles with every attempt up to a cap. It is spread by ``roll``, a random number in
[0, 1) that the caller draws, so that pages that failed together do not come back together.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from weft.errors import BadResponse, FetchError, NetworkError, TLSError, TooSlow, UnknownHost

THROTTLED: Final = frozenset({429, 503, 529})
SERVER: Final = frozenset({408, 500, 502, 504, *range(520, 525), 598, 599})

THROTTLED_TRIES: Final = 3
"""So many times the usual retries are had by a page that is throttled."""
THROTTLED_BASE: Final = 5.0
"""So many times the usual wait, if the host names none."""
DNS_RETRIES: Final = 1
MAX_RETRY_AFTER: Final = 3600.0

_seconds: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{0,9})?").fullmatch


class RetryPolicy(msgspec.Struct, frozen=True):
    """``retries`` on top of the first try; waits start at ``base`` seconds, never pass ``cap``.

    A wait lies between its full length and that length less the fraction ``jitter``.
    """

    retries: int = 3
    base: float = 1.0
    cap: float = 300.0
    jitter: float = 0.5


class Verdict(msgspec.Struct, frozen=True):
    """Whether to try again and ``after`` how many seconds; ``hold`` the lane for so long, 0 for not at all."""

    retry: bool
    after: float = 0.0
    hold: float = 0.0


GIVE_UP: Final = Verdict(retry=False)
_ROBOTS: Final = RetryPolicy()


def backoff(policy: RetryPolicy, attempt: int, roll: float, base: float | None = None) -> float:
    """Seconds to wait after attempt number ``attempt``, 1 being the first."""
    doublings = min(max(attempt - 1, 0), 64)
    full = min((policy.base if base is None else base) * 2.0**doublings, policy.cap)
    return full * (1.0 - policy.jitter * roll)


def decide_status(
    policy: RetryPolicy, attempt: int, status: int, retry_after: float | None, roll: float
) -> Verdict | None:
    """After an answer; None if its status is not one that another try may mend.

    A ``retry_after`` is obeyed up to ``MAX_RETRY_AFTER``. The lane of a host that throttles is
    held even when this page's tries are used up.
    """
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
    """After no answer. An error of a class that is not known here is not tried again."""
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


def decide_robots(tries: int, failure: FetchError | int, retry_after: float | None, roll: float) -> Verdict:
    """After try number ``tries`` for a robots.txt, that ended in an error or in a status that told nothing.

    As often as a page is tried by default, and no crawl's ``retries`` change it: with none, the first hiccup would
    close a site, and with many, a site that is gone would keep the crawl from ending. A 5xx of any kind is
    that of a server that fails. While there are tries left the lane is held; after the last one it is not, so that the
    pages that wait in it need not wait to be given up.
    """
    if isinstance(failure, FetchError):
        verdict = decide_error(_ROBOTS, tries, failure, roll)
    else:
        status = failure if failure in THROTTLED else 500
        verdict = decide_status(_ROBOTS, tries, status, retry_after, roll) or GIVE_UP
    if not verdict.retry:
        return GIVE_UP
    return Verdict(retry=True, after=verdict.after, hold=max(verdict.hold, verdict.after))


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds from ``now`` (UTC) of a Retry-After header: a number, or a date; None if it makes no sense.

    A moment in the past makes none, and more than ``MAX_RETRY_AFTER`` is cut to that.
    """
    value = (value or "").strip()
    if _seconds(value):
        return min(float(value), MAX_RETRY_AFTER)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    seconds = (_aware(date) - _aware(now)).total_seconds()
    return min(seconds, MAX_RETRY_AFTER) if seconds >= 0 else None


def _aware(moment: datetime) -> datetime:
    # The two old date formats that HTTP still allows name no zone; by the standard they are in UTC.
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _wait(policy: RetryPolicy, attempt: int, retry_after: float | None, roll: float, base: float) -> float:
    if retry_after is None:
        return backoff(policy, attempt, roll, base)
    # "0" is sent by hosts that mean "soon"; taken literally it would be hammering.
    return min(max(retry_after, policy.base), MAX_RETRY_AFTER)
