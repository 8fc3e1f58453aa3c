"""Hosts that were given up for a while, and the token that opens them again.

A host is given up if its robots.txt could not be fetched, or if it asks to wait longer than the crawl does
(:class:`ThrottledHosts`). Until the time is over its pages become dead without a request, also those that
``uttu retry`` queues again. So ``uttu retry`` writes a random token to the memo (:func:`write_retry_token`). A worker
that gives a host up keeps the token of that moment. If the memo has another token by now, it tries the host again.
"""

from __future__ import annotations

import secrets
from typing import Final, TypeVar

from uttu.clock import Clock
from uttu.frontier.base import Memo
from uttu.policy.retry import THROTTLED, Verdict, format_seconds

T = TypeVar("T")

_KEY: Final = "retried"
# How long the token is kept; no host stays given up for longer.
_SECONDS: Final = 24 * 3600.0


async def write_retry_token(memo: Memo) -> None:
    """Write a new token, so that hosts that were given up are tried again. Call it before their pages are put back."""
    await memo.remember(_KEY, secrets.token_hex(8).encode(), _SECONDS)


async def read_retry_token(memo: Memo) -> str:
    """The current token; empty if ``uttu retry`` was never used."""
    return (await memo.recall(_KEY) or b"").decode()


_MAX_LANES = 20_000


class ThrottledHosts:
    """The hosts that throttle one worker.

    :param longest: Seconds; a host that asks to wait longer is given up. The setting ``max_retry_after``.
    :param memo: Where ``uttu retry`` writes its token; None if hosts are not opened again.
    """

    def __init__(self, longest: float, clock: Clock, memo: Memo | None = None) -> None:
        self._longest = longest
        self._clock = clock
        self._memo = memo
        self._closed: dict[str, tuple[float, str]] = {}  # the time (monotonic) at which the lane opens, and the reason
        self._tokens: dict[str, str] = {}  # the token when the lane was closed
        self._throttling: dict[str, float] = {}  # since when (monotonic) every answer has throttled

    def refuse(self, lane: str) -> str | None:
        """The reason why pages of this lane are not requested now; None if they are."""
        if lane not in self._closed:
            return None
        until, reason = self._closed[lane]
        return f"not requested: its host {reason}" if until > self._clock.monotonic() else None

    async def reopened(self, lane: str) -> bool:
        """Open a closed lane if ``uttu retry`` was used since it was closed; returns whether it did."""
        if self._memo is None or self._tokens.get(lane, "") == await read_retry_token(self._memo):
            return False
        self._closed.pop(lane, None)
        self._throttling.pop(lane, None)
        return True

    async def note_closed(self, lane: str) -> None:
        """Store the token of a lane that was just closed. Call it after a verdict that closes the lane."""
        if self._memo is not None:
            _make_room(self._tokens)[lane] = await read_retry_token(self._memo)

    def answered(self, lane: str, status: int) -> None:
        """Note the status of a response: one that does not throttle resets the time."""
        if self._throttling and status not in THROTTLED:
            self._throttling.pop(lane, None)

    def decide(self, lane: str, status: int, verdict: Verdict) -> tuple[Verdict, str]:
        """Decide after an error status: the verdict, stricter if the host has throttled for too long, and its reason.

        :param verdict: The decision by this response alone.
        """
        reason, bound = f"answered with status {status}", f"max_retry_after={self._longest:g}"
        if verdict.too_long:
            reason += f" and asks to wait {format_seconds(verdict.too_long)}, more than {bound}"
        elif verdict.hold:
            now = self._clock.monotonic()
            waited = now - _make_room(self._throttling).setdefault(lane, now)
            if waited and waited + verdict.hold > self._longest:
                reason += f" for {format_seconds(round(waited))} now, and asks to wait longer than {bound}"
                verdict = Verdict(retry=False, too_long=verdict.hold, closed=True)
        if verdict.closed:
            _make_room(self._closed)[lane] = (self._clock.monotonic() + verdict.too_long, reason)
        return verdict, reason


def _make_room(lanes: dict[str, T]) -> dict[str, T]:
    if len(lanes) >= _MAX_LANES:
        lanes.clear()
    return lanes
