"""Produces, in a thread of its own: the driver's calls block, and its reports are made by whoever calls it.

    send ──► queue ──► round: produce all that waits, flush, tell each sender

A round takes all that was sent meanwhile, and the next begins when every message of it is confirmed or given up. So
``flush``, which waits for everything, can be used, and sends at once what would else linger for company. What is not
reported as failed by then is confirmed: a report for each message would cost nearly as much as to send it.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from weft.bus.kafka.address import Address
from weft.bus.kafka.errors import the_error, told
from weft.bus.kafka.wire import Record
from weft.errors import BusError

_LOOK_SECONDS: Final = 0.25  # how often a producer without work is asked for its errors
_FLUSH_SECONDS: Final = 0.5


class _Parcel:
    """What one call sends, and what came of it. Touched by the thread only, but for the future."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.error: KafkaError | None = None
        self.loop = asyncio.get_running_loop()
        self.sent: asyncio.Future[KafkaError | None] = self.loop.create_future()

    def failed(self, error: KafkaError | None, _: object) -> None:
        self.error = self.error or error

    def tell(self) -> None:
        # A loop that is closed has nobody left who could be told.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self.sent.done():
            self.sent.set_result(self.error)


class Sender:
    """``trouble`` is told the driver's errors, in the sender's thread."""

    def __init__(self, address: Address, trouble: Callable[[KafkaError], None]) -> None:
        self._address = address
        self._settings: dict[str, Any] = address.client() | {
            "enable.idempotence": True,  # with it come acks=all, retries and the order
            "partitioner": "murmur2_random",  # a key's partition is the one that Kafka's own clients choose
            "compression.type": address.options.compression,
            "message.timeout.ms": int(address.options.timeout * 1000),
            "message.max.bytes": 100_000_000,  # the brokers decide
            "delivery.report.only.error": True,
            "error_cb": trouble,
        }
        self._parcels: queue.SimpleQueue[_Parcel | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="weft kafka sender", daemon=True)
        self._thread.start()

    async def send(self, records: Sequence[Record]) -> None:
        """Return when all are confirmed.

        :raises BusError: one was not.
        """
        parcel = _Parcel(records)
        self._parcels.put(parcel)
        error = await parcel.sent
        if error is not None:
            topics = ", ".join(sorted({topic for topic, *_ in records})[:3])
            raise self._told(error, topics)

    async def close(self) -> None:
        """Send what was given to it, and end."""
        self._parcels.put(None)
        await asyncio.to_thread(self._thread.join)

    def _told(self, error: KafkaError, topics: str) -> BusError:
        if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
            return told(error, self._address.brokers, f"a message to {topics} is too large")
        if error.code() == KafkaError._MSG_TIMED_OUT:
            seconds = self._address.options.timeout
            return told(error, self._address.brokers, f"nothing was confirmed on {topics} within {seconds:g} s")
        return told(error, self._address.brokers, f"can't publish to {topics}")

    def _run(self) -> None:
        producer = Producer(self._settings)
        while True:
            try:
                first = self._parcels.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                producer.poll(0)
                continue
            parcels = [first]
            with contextlib.suppress(queue.Empty):
                while first is not None:
                    parcels.append(self._parcels.get_nowait())
            given = [parcel for parcel in parcels if parcel is not None]
            self._round(producer, given)
            if any(parcel.error is not None and parcel.error.fatal() for parcel in given):
                producer = Producer(self._settings)  # after such an error it takes nothing more
            if len(given) < len(parcels):
                return

    def _round(self, producer: Producer, parcels: Sequence[_Parcel]) -> None:
        for parcel in parcels:
            self._produce(producer, parcel)
        while producer.flush(_FLUSH_SECONDS):
            pass
        for parcel in parcels:
            parcel.tell()

    def _produce(self, producer: Producer, parcel: _Parcel) -> None:
        failed = parcel.failed
        for topic, value, key, headers in parcel.records:
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=failed, headers=headers)
                except BufferError:
                    producer.flush(_FLUSH_SECONDS)  # its memory is full
                    continue
                except KafkaException as error:
                    failed(the_error(error), None)
                    return
                break
