"""Hosts that were given up for a while, and when they are asked again.

A host is given up if its robots.txt could not be fetched, or if it asks to be left alone for longer than the crawl
waits (:class:`ThrottledHosts`). Until the time is over its pages are given up without a request, also those that
``uttu retry`` puts back. So ``uttu retry`` writes a new random word to the memo (:func:`grant`). Whoever gives a host
up keeps the word of that moment; if the memo has another one by now, the host is asked again.
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


async def grant(memo: Memo) -> None:
    """Write a new token, so that hosts that were given up are tried again. Call it before their pages are put back."""
    await memo.remember(_KEY, secrets.token_hex(8).encode(), _SECONDS)


async def current(memo: Memo) -> str:
    """The current token; empty if nobody has used ``uttu retry``."""
    return (await memo.recall(_KEY) or b"").decode()


_MOST_LANES = 20_000


class ThrottledHosts:
    """What one worker knows of the hosts that throttle it."""

    def __init__(self, longest: float, clock: Clock, memo: Memo | None = None) -> None:
        """``memo``: where ``uttu retry`` leaves word that lanes are to be opened again."""
        self._longest = longest
        self._clock = clock
        self._memo = memo
        self._closed: dict[str, tuple[float, str]] = {}  # until when, and why
        self._words: dict[str, str] = {}  # of closed lanes, see the module
        self._throttling: dict[str, float] = {}  # since when there was no other answer

    def refuse(self, lane: str) -> str | None:
        """Why nothing of this lane is asked for now; None if it may be."""
        if lane not in self._closed:
            return None
        until, reason = self._closed[lane]
        return f"not asked for: its host {reason}" if until > self._clock.monotonic() else None

    async def reopened(self, lane: str) -> bool:
        """Open a lane that is closed, if its pages were put back in line by hand since."""
        if self._memo is None or self._words.get(lane, "") == await current(self._memo):
            return False
        self._closed.pop(lane, None)
        self._throttling.pop(lane, None)
        return True

    async def note_closed(self, lane: str) -> None:
        """To be called after a verdict that closes the lane."""
        if self._memo is not None:
            _make_room(self._words)[lane] = await current(self._memo)

    def answered(self, lane: str, status: int) -> None:
        """A host has answered."""
        if self._throttling and status not in THROTTLED:
            self._throttling.pop(lane, None)

    def decide(self, lane: str, status: int, verdict: Verdict) -> tuple[Verdict, str]:
        """What to do after an answer that is no page, given what to do by itself; and the reason in words."""
        reason, bound = f"answered with status {status}", f"max_retry_after={self._longest:g}"
        if verdict.too_long:
            reason += f" and asks to wait {format_seconds(verdict.too_long)}, more than {bound}"
        elif verdict.hold:
            now = self._clock.monotonic()
            waited = now - _make_room(self._throttling).setdefault(lane, now)
            if waited and waited + verdict.hold > self._longest:
                reason += f" for {format_seconds(round(waited))} now, and asks to wait on: {bound}"
                verdict = Verdict(retry=False, too_long=verdict.hold, closed=True)
        if verdict.closed:
            _make_room(self._closed)[lane] = (self._clock.monotonic() + verdict.too_long, reason)
        return verdict, reason


def _make_room(lanes: dict[str, T]) -> dict[str, T]:
    if len(lanes) >= _MOST_LANES:
        lanes.clear()
    return lanes
