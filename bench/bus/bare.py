"""Each broker's client library, used as its documentation shows, and in batches where it has them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aio_pika
import redis.asyncio as aioredis
from bench.bus.client import BATCH, PAYLOAD
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


class BareRedis:
    """Streams: XADD in pipelines; XREADGROUP and XACK."""

    def __init__(self, url: str) -> None:
        self._client = aioredis.Redis.from_url(url)
        self._stream = ""

    async def open(self, topic: str) -> None:
        self._stream = topic
        await self._client.xgroup_create(topic, "g", "0", mkstream=True)

    async def publish(self, count: int) -> None:
        for first in range(0, count, BATCH):
            async with self._client.pipeline(transaction=False) as pipeline:
                for key in range(first, first + BATCH):
                    pipeline.xadd(self._stream, {"key": str(key), "payload": PAYLOAD})
                await pipeline.execute()

    async def consume(self, count: int) -> float:
        first = 0.0
        while count > 0:
            found = await self._client.xreadgroup("g", "c", {self._stream: ">"}, count=BATCH, block=1000)
            first = first or time.monotonic()
            for _, entries in found:
                await self._client.xack(self._stream, "g", *[entry for entry, _ in entries])
                count -= len(entries)
        return time.monotonic() - first

    async def close(self) -> None:
        await self._client.aclose()


class BareRabbit:
    """A quorum queue at a topic exchange; a batch is published at once and confirmed together."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._channel: Any = None
        self._exchange: Any = None
        self._queue: Any = None
        self._topic = ""

    async def open(self, topic: str) -> None:
        self._topic = topic
        self._connection = await aio_pika.connect(self._url)
        self._channel = await self._connection.channel(publisher_confirms=True)
        await self._channel.set_qos(prefetch_count=500)
        self._exchange = await self._channel.declare_exchange("bare", aio_pika.ExchangeType.TOPIC, durable=True)
        self._queue = await self._channel.declare_queue(
            f"{topic}.bare", durable=True, arguments={"x-queue-type": "quorum"}
        )
        await self._queue.bind(self._exchange, topic)

    async def publish(self, count: int) -> None:
        for _ in range(0, count, BATCH):
            messages = [aio_pika.Message(PAYLOAD, delivery_mode=aio_pika.DeliveryMode.PERSISTENT) for _ in range(BATCH)]
            await asyncio.gather(*[self._exchange.publish(each, routing_key=self._topic) for each in messages])

    async def consume(self, count: int) -> float:
        left, first, done = count, 0.0, asyncio.Event()

        async def handler(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            nonlocal left, first
            first = first or time.monotonic()
            left -= 1
            if left % BATCH == 0:
                await message.ack(multiple=True)
            if left == 0:
                done.set()

        tag = await self._queue.consume(handler)
        await done.wait()
        seconds = time.monotonic() - first
        await self._queue.cancel(tag)
        return seconds

    async def close(self) -> None:
        await self._connection.close()


class BareKafka:
    """An idempotent producer, flushed after each batch; a consumer that reads each message, and commits after a batch.

    It does not wait for the commits, so nothing limits how many messages are delivered twice after a crash.
    """

    def __init__(self, url: str) -> None:
        self._servers = url.removeprefix("kafka://").partition("?")[0]
        self._topic = ""
        self._producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})

    async def open(self, topic: str) -> None:
        self._topic = topic
        admin = AdminClient({"bootstrap.servers": self._servers})
        for future in admin.create_topics([NewTopic(topic, num_partitions=8, replication_factor=1)]).values():
            await asyncio.to_thread(future.result)

    async def publish(self, count: int) -> None:
        await asyncio.to_thread(self._publish, count)

    async def consume(self, count: int) -> float:
        return await asyncio.to_thread(self._consume, count)

    async def close(self) -> None:
        pass

    def _publish(self, count: int) -> None:
        failures: list[Any] = []

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                failures.append(error)

        for first in range(0, count, BATCH):
            for key in range(first, first + BATCH):
                self._producer.produce(self._topic, PAYLOAD, key=str(key), on_delivery=on_delivery)
            self._producer.flush()
        if failures:
            raise SystemExit(f"not delivered: {failures[0]}")

    def _consume(self, count: int) -> float:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": f"{self._topic}.bare",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([self._topic])
        first = 0.0
        while count > 0:
            messages = consumer.consume(BATCH, timeout=1.0)
            if not messages:
                continue
            first = first or time.monotonic()
            count -= len(messages)
            ends: dict[int, int] = {}
            for each in messages:
                if each.error():
                    raise SystemExit(f"not read: {each.error()}")
                each.value(), each.key(), each.headers()
                ends[each.partition()] = each.offset() + 1
            offsets = [TopicPartition(self._topic, partition, end) for partition, end in ends.items()]
            consumer.commit(offsets=offsets, asynchronous=True)
        seconds = time.monotonic() - first
        consumer.close()
        return seconds
