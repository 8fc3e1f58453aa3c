"""A queue per level of URLs, each with its own callback and acknowledgement: download, parse, download."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from uttu.bus.base import Delivery, Message, SubscribeOptions
from uttu.bus.rabbitmq import RabbitBus
from uttu.testing.contracts.broker import eventually

SITE = {"/": ["/a", "/b"], "/a": ["/a/1", "/a/2", "/a/3"], "/b": ["/b/1"]}


async def test_links_go_down_the_levels(rabbitmq_url: str) -> None:
    bus, site = await RabbitBus.connect(rabbitmq_url), f"t{uuid4().hex[:8]}"
    seen: dict[int, list[str]] = {0: [], 1: [], 2: []}
    stumbled: set[str] = set()

    def level(number: int) -> SubscribeOptions:
        return SubscribeOptions(topics=(f"{site}.level.{number}",), group=f"{site}.level-{number}", batch=2)

    async def follow(deliveries: list[Delivery]) -> None:
        """The links of a page are confirmed by the broker before the page itself is acknowledged."""
        for delivery in deliveries:
            url, number = delivery.payload.decode(), int(delivery.topic[-1])
            await asyncio.sleep(0)  # a download
            if url == "/b" and url not in stumbled:
                stumbled.add(url)
                raise ConnectionError("the site hung up")
            links = [Message(topic=f"{site}.level.{number + 1}", payload=link.encode(), id=link) for link in SITE[url]]
            await bus.publish(links)
            seen[number].append(url)

    async def keep(deliveries: list[Delivery]) -> None:
        seen[2] += [delivery.payload.decode() for delivery in deliveries]

    for number, handler in enumerate((follow, follow, keep)):
        await bus.subscribe(level(number), handler)
    await bus.publish([Message(topic=f"{site}.level.0", payload=b"/")])

    async def is_done() -> bool:
        groups = await bus.groups(*(level(number).group for number in range(3)))
        return len(set(seen[2])) == 4 and all(group.ready == 0 for group in groups)

    await eventually(is_done)
    assert seen[0] == ["/"]
    assert set(seen[1]) == {"/a", "/b"}  # what failed came again
    assert set(seen[2]) == {"/a/1", "/a/2", "/a/3", "/b/1"}
    for number in range(3):
        await bus.purge(level(number).group, forget=True)
    await bus.close()
