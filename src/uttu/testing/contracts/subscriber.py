"""A program that subscribes to a topic, for tests that kill it.

    python -m uttu.testing.contracts.subscriber URL GROUP TOPIC FILE [NAME=NUMBER …]

It appends the line ``ready`` to FILE when the subscription is active. After that it appends ``ID ATTEMPT`` for each
handled message, before the message is acknowledged. Every line is complete and is in the file even after kill -9. The
program ends at the end of its standard input, so it does not outlive the test that started it.

Options: ``batch``, ``prefetch``, ``attempts``, and ``pause``, the seconds that the handler sleeps in each batch.
"""

from __future__ import annotations

import asyncio
import os
import sys

from uttu.bus.base import Delivery, SubscribeOptions
from uttu.runtime.registry import open_bus


async def consume(url: str, group: str, topic: str, file: str, pause: float = 0.0, **numbers: int) -> None:
    """Subscribe, and write one line per message until the task is cancelled or the subscription fails."""
    output = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    async def handle(deliveries: list[Delivery]) -> None:
        if pause:
            await asyncio.sleep(pause)
        # A single write() call: the kernel has all lines of the batch when it returns, also if the process is killed.
        os.write(output, "".join(f"{delivery.id} {delivery.attempt}\n" for delivery in deliveries).encode())

    bus = await open_bus(url)
    try:
        subscription = await bus.subscribe(SubscribeOptions(topics=(topic,), group=group, **numbers), handle)  # type: ignore[arg-type]
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
    # The subscription has failed. The thread that reads stdin can't be stopped and would block a normal exit.
    error = consuming.exception()
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    asyncio.run(main())
