"""Produce messages in a dedicated thread: the driver's calls block, and delivery reports come in the calling thread.

    send ──► queue ──► round: produce everything in the queue, flush, report to each caller

A round takes everything that was queued during the last one. It ends when each of its messages is confirmed or has
failed. ``flush`` waits for exactly that, and it also sends messages at once, without ``linger.ms``. The driver reports
failures only (``delivery.report.only.error``): a message without a report after ``flush`` is confirmed. One report per
message would cost nearly as much as sending it.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from uttu.bus.kafka.codec import Record
from uttu.clients.kafka import KafkaAddress, get_error, to_bus_error
from uttu.errors import BusError

_POLL_SECONDS: Final = 0.25  # seconds between two polls of an idle producer, which call error_cb
_FLUSH_SECONDS: Final = 0.5  # timeout of one flush; it is repeated until nothing is left


class _PendingSend:
    """The records of one call of ``send``, and its result.

    ``records`` and ``error`` belong to the producer's thread. The future ``sent`` belongs to the event loop.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.error: KafkaError | None = None
        self.loop = asyncio.get_running_loop()
        self.sent: asyncio.Future[KafkaError | None] = self.loop.create_future()

    def record_error(self, error: KafkaError | None, _: object) -> None:
        """Record the first error; this is the driver's ``on_delivery`` callback."""
        self.error = self.error or error

    def report(self) -> None:
        # The loop may be closed; nobody waits for the result in that case.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._set_result)

    def _set_result(self) -> None:
        if not self.sent.done():
            self.sent.set_result(self.error)


class KafkaProducer:
    """The producer of a bus. Its thread owns the driver's producer; the event loop only adds to the queue.

    :param on_error: called with the driver's errors, in the producer's thread.
    """

    def __init__(self, address: KafkaAddress, on_error: Callable[[KafkaError], None]) -> None:
        self._address = address
        self._settings: dict[str, Any] = address.client() | {
            "enable.idempotence": True,  # implies acks=all, and retries that keep the order
            "partitioner": "murmur2_random",  # the same partition for a key as the Java client chooses
            "compression.type": address.options.compression,
            "message.timeout.ms": int(address.options.timeout * 1000),
            "message.max.bytes": 100_000_000,  # higher than any usual limit of the brokers, so that theirs counts
            "delivery.report.only.error": True,
            "error_cb": on_error,
        }
        self._queue: queue.SimpleQueue[_PendingSend | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="uttu kafka sender", daemon=True)
        self._thread.start()

    async def send(self, records: Sequence[Record]) -> None:
        """Send records; return when all are confirmed.

        :raises BusError: at least one was not confirmed within the address's ``timeout``, or was refused.
        """
        send = _PendingSend(records)
        self._queue.put(send)
        error = await send.sent
        if error is not None:
            topics = ", ".join(sorted({topic for topic, *_ in records})[:3])
            raise self._map_error(error, topics)

    async def close(self) -> None:
        """Send all queued records, and end the thread."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _map_error(self, error: KafkaError, topics: str) -> BusError:
        if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
            return to_bus_error(error, self._address.brokers, f"A message to {topics} is too large")
        if error.code() == KafkaError._MSG_TIMED_OUT:
            seconds = self._address.options.timeout
            return to_bus_error(error, self._address.brokers, f"No confirmation from {topics} within {seconds:g} s")
        return to_bus_error(error, self._address.brokers, f"Cannot publish to {topics}")

    def _run(self) -> None:
        producer = self._create()
        while True:
            try:
                first = self._queue.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if producer is not None:
                    with contextlib.suppress(KafkaException, RuntimeError):
                        producer.poll(0)
                continue
            taken = [first]
            with contextlib.suppress(queue.Empty):
                while first is not None:
                    taken.append(self._queue.get_nowait())
            sends = [send for send in taken if send is not None]
            try:
                if producer is None:
                    producer = Producer(self._settings)
                self._send_all(producer, sends)
            except Exception as error:
                # Report any error to the callers: they wait for this thread and would otherwise wait without limit.
                for send in sends:
                    send.record_error(get_error(error), None)
                producer = None
            if any(send.error is not None and send.error.fatal() for send in sends):
                producer = self._create()  # a producer refuses all messages after a fatal error
            for send in sends:
                send.report()
            if len(sends) < len(taken):  # close() was called
                return

    def _create(self) -> Producer | None:
        """Create a producer, or return None: the next round tries again and reports the error to the callers."""
        try:
            return Producer(self._settings)
        except Exception:
            return None

    def _send_all(self, producer: Producer, sends: Sequence[_PendingSend]) -> None:
        for send in sends:
            self._produce(producer, send)
        while producer.flush(_FLUSH_SECONDS):
            pass

    def _produce(self, producer: Producer, send: _PendingSend) -> None:
        record_error = send.record_error
        for topic, value, key, headers in send.records:
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=record_error, headers=headers)
                except BufferError:
                    producer.flush(_FLUSH_SECONDS)  # the producer's queue is full
                    continue
                except KafkaException as error:
                    record_error(get_error(error), None)
                    return
                break
