"""Waiting for a server that is away: it can't be reached, is loading its data, or is a replica for the moment.

What is tried again must do no harm when it is done twice. What waiting can't mend is an error at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import redis.exceptions as refused

from weft.drivers.redis.refusals import REFUSALS

T = TypeVar("T")

_WAIT_SECONDS: Final = (0.05, 2.0)


class Patience:
    """Tries again and again, and tells when it begins and ends to wait.

    - ``waits``: whether an error passes by itself.
    - ``refusal``: what to raise for one that does not, or that took too long.
    - ``away``: is told of each try that failed, and why; ``back``: that all is well again, and after how many seconds.
    """

    def __init__(
        self,
        waits: Callable[[Exception], bool],
        refusal: Callable[[Exception], Exception],
        away: Callable[[Exception], None],
        back: Callable[[float], None],
    ) -> None:
        self._waits = waits
        self._refusal = refusal
        self._away = away
        self._back = back
        self._waiting = 0
        self._since: float | None = None

    async def __call__(self, work: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """What ``work`` comes to; tries for so many seconds, by default for ever."""
        now = asyncio.get_running_loop().time
        end = None if seconds is None else now() + seconds
        wait, waited, cut = _WAIT_SECONDS[0], False, False
        try:
            while True:
                try:
                    result = await answered(work(), end)
                    break
                except REFUSALS as error:
                    if not self._waits(error):
                        raise self._refusal(error) from error
                    if isinstance(error, refused.ConnectionError) and not cut:
                        cut = True  # perhaps only this connection was: nothing to speak of
                        continue
                    self._waiting += not waited
                    waited = True
                    self._since = self._since or now()
                    self._away(error)
                    if end is not None and now() + wait > end:
                        raise self._refusal(error) from error
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))
                wait = min(wait * 2, _WAIT_SECONDS[1])
        finally:
            self._waiting -= waited
        # While one call waits another may succeed: a server without memory to write can still be read.
        if self._since is not None and not self._waiting:
            away, self._since = now() - self._since, None
            self._back(away)
        return result


async def answered(work: Awaitable[T], end: float | None) -> T:
    """The same as :func:`driven`, if it comes by this time."""
    limit = asyncio.timeout_at(end)
    try:
        async with limit:
            return await driven(work)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise refused.TimeoutError("Timeout: it does not answer") from error


async def driven(work: Awaitable[T]) -> T:
    """What the driver comes to, but for two things that it lets through.

    It uses ``asyncio.wait_for``, which before Python 3.12 drops a cancel that comes together with what is waited for;
    whoever cancelled would wait for ever. And a connection that is lost before anything was said on it is, with
    uvloop, no error of connections.
    """
    task = asyncio.current_task()
    cancels = task.cancelling() if task is not None else 0
    try:
        return await work
    except RuntimeError as error:
        if "handler is closed" not in str(error):
            raise
        raise refused.ConnectionError("the connection was lost at once") from error
    finally:
        if task is not None and task.cancelling() > cancels:
            raise asyncio.CancelledError
