"""A look at what a queue has, without taking it: messages are got, and given back to their places.

To a quorum queue that is another time it was handed out, and after some of them a message is given up. So
what was looked at so often that it comes near to that is put into the queue anew, at its end.
"""

from __future__ import annotations

import asyncio

from aiormq import spec
from aiormq.abc import AbstractChannel, DeliveredMessage

from weft.bus.rabbitmq.layout import NEAR
from weft.bus.rabbitmq.wire import delivery, handed_out, moved


async def look(channel: AbstractChannel, queue: str, limit: int) -> list[DeliveredMessage]:
    """The next messages of the queue. Confirms must be on."""
    seen: list[DeliveredMessage] = []
    while len(seen) < limit:
        message = await channel.basic_get(queue)
        if isinstance(message.delivery, spec.Basic.GetEmpty):
            break
        seen.append(message)
    if worn := [message for message in seen if handed_out(message) >= NEAR]:
        await asyncio.gather(*[_put_anew(channel, queue, message) for message in worn])
    if len(worn) < len(seen):
        await channel.basic_nack(seen[-1].delivery_tag or 0, multiple=True, requeue=True)
    return seen


async def _put_anew(channel: AbstractChannel, queue: str, message: DeliveredMessage) -> None:
    copy = delivery(message)
    attempt = copy.attempt - bool(message.redelivered)
    await channel.basic_publish(copy.payload, routing_key=queue, properties=moved(copy, attempt))
    await channel.basic_ack(message.delivery_tag or 0)
