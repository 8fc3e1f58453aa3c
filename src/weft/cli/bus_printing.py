"""Printing messages as they come, until there were enough or someone ends it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from weft.bus.base import Connection, Delivery, Interest, Subscription
from weft.cli.bus_messages import as_line
from weft.cli.bus_open import bus_at
from weft.cli.words import number, say


async def print_messages(url: str, interest: Interest, count: int | None, seconds: float | None) -> None:
    """Until ``count`` were printed, ``seconds`` are over, or SIGINT or SIGTERM comes.

    :raises BusError: the bus can't be used.
    :raises OSError: standard output can't be written; what it did not take is not acknowledged.
    """
    async with bus_at(url) as bus:
        bus.listen(_say_connection)
        printer = _Printer(count)
        subscription = await bus.subscribe(interest, printer.handle)
        if count == 0:
            # Before anything is handed out, which would count as an attempt.
            subscription.pause()
        printer.began.set_result(subscription)
        try:
            await _until_over(subscription, printer.over, seconds)
        finally:
            await subscription.close()
    if printer.error is not None:
        raise printer.error
    say(number(printer.printed, "message"))


class _Printer:
    def __init__(self, count: int | None) -> None:
        self.printed = 0
        self.error: OSError | None = None
        self.over = asyncio.Event()
        self.began: asyncio.Future[Subscription] = asyncio.get_running_loop().create_future()
        self._count = count
        if count == 0:
            self.over.set()

    async def handle(self, deliveries: list[Delivery]) -> None:
        try:
            for delivery in deliveries:
                print(as_line(delivery))
            sys.stdout.flush()
        except OSError as error:
            self.error = error
            await self._end()
            raise
        self.printed += len(deliveries)
        if self.printed == self._count:
            await self._end()

    async def _end(self) -> None:
        """Nothing more is handed out from here on."""
        self.over.set()
        await (await self.began).close()


async def _until_over(subscription: Subscription, over: asyncio.Event, seconds: float | None) -> None:
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, over.set)
    ends = [asyncio.ensure_future(subscription.wait()), asyncio.ensure_future(over.wait())]
    try:
        done, _ = await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for end in done:
            end.result()
    finally:
        for end in ends:
            end.cancel()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)


def _say_connection(state: Connection, what: str) -> None:
    if state is not Connection.CLOSED:
        with contextlib.suppress(OSError):
            say(f"the connection is {state}: {what}")
