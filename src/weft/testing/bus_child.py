"""A program that subscribes, for tests that kill it: ``python -m weft.testing.bus_child URL GROUP TOPIC FILE``.

It writes the line ``ready`` to FILE when the subscription is in force, and then ``ID ATTEMPT`` for each message that it
has handled, before the message is acknowledged. Lines are whole, and are there even after kill -9. It ends when its
standard input does, so it does not outlive the test that started it.

Optional, as ``NAME=NUMBER`` after these: ``batch``, ``prefetch``, ``attempts``, and ``pause``, the seconds that the
handler takes for each batch.
"""

from __future__ import annotations

import asyncio
import os
import sys

from weft.assembly import open_bus
from weft.bus.base import Delivery, Interest


async def consume(url: str, group: str, topic: str, file: str, pause: float = 0.0, **numbers: int) -> None:
    """Handle messages until the task is cancelled."""
    output = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    async def handle(deliveries: list[Delivery]) -> None:
        if pause:
            await asyncio.sleep(pause)
        # One write for all: what was begun is there whole. It goes to the system, and so survives the process.
        os.write(output, "".join(f"{delivery.id} {delivery.attempt}\n" for delivery in deliveries).encode())

    bus = await open_bus(url)
    try:
        subscription = await bus.subscribe(Interest(topics=(topic,), group=group, **numbers), handle)  # type: ignore[arg-type]
        os.write(output, b"ready\n")
        await subscription.wait()
    finally:
        await bus.close()
        os.close(output)


async def main() -> None:
    url, group, topic, file, *options = sys.argv[1:]
    given = dict(option.split("=") for option in options)
    pause = float(given.pop("pause", "0"))
    numbers = {name: int(text) for name, text in given.items()}
    consuming = asyncio.create_task(consume(url, group, topic, file, pause, **numbers))
    left = asyncio.create_task(asyncio.to_thread(sys.stdin.buffer.read))
    await asyncio.wait((consuming, left), return_when=asyncio.FIRST_COMPLETED)
    if left.done():
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)
        return
    # The thread that reads can't be stopped, and would keep the program.
    error = consuming.exception()
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    asyncio.run(main())
