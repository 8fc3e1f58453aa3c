"""Word to all processes of a crawl that something is asked of them.

What is asked stands in the ledger, and they look there every second. A message on ``control.NAME`` makes them look at
once. So it matters little if one is lost, and what it says is only for people.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from weft.bus.base import Bus, Delivery, Interest, Message
from weft.bus.topics import word

# However much is said, the ledger is not looked into more often.
_PAUSE_SECONDS: Final = 0.1


def topic_of(crawl: str) -> str:
    return f"control.{word(crawl)}"


async def announce(bus: Bus, crawl: str, action: str) -> None:
    """Let all processes of the crawl look into the ledger now.

    :raises BusError: that can't be told.
    """
    payload = msgspec.json.encode({"crawl": crawl, "action": action})
    await bus.publish([Message(topic=topic_of(crawl), payload=payload, key=crawl)])


async def hear(bus: Bus, crawl: str, heed: Callable[[], None]) -> None:
    """Call ``heed`` whenever something was announced, until the bus is closed.

    :raises BusError: the topic can't be subscribed to.
    """

    async def handle(deliveries: list[Delivery]) -> None:
        heed()
        await asyncio.sleep(_PAUSE_SECONDS)

    await bus.subscribe(Interest(topics=(topic_of(crawl),)), handle)
