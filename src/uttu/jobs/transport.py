"""Give priorities the same meaning on every broker: 0 to 9, with 9 first.

Celery on Redis has one list per priority and reads them in ascending order, so 0 comes first, the reverse of RabbitMQ.
This transport reads them in descending order. The names of the lists do not change, and a message keeps the number it
was sent with, so a retry, which copies it, has the same priority.
"""

from __future__ import annotations

from typing import Any

import kombu
from celery.app import amqp
from kombu import pools
from kombu.transport import redis

from uttu.jobs.configuration import HIGHEST_PRIORITY
from uttu.jobs.settings import kind_of


class Channel(redis.Channel):
    """The Redis channel of Kombu, with the highest priority first."""

    priority_steps = list(range(HIGHEST_PRIORITY, -1, -1))

    def __init__(self, connection: Any, *args: Any, **options: Any) -> None:
        self._client = connection.client
        super().__init__(connection, *args, **options)

    def priority(self, n: int) -> int:
        """Return the list for a priority. Kombu's own method assumes ascending steps."""
        return max(0, min(n, HIGHEST_PRIORITY))

    def _connparams(self, asynchronous: bool = False) -> Any:
        """Return the connection parameters, even if the connection was lost.

        Celery then dismantles the connection first and closes its channels later, and a running task acknowledges its
        message on one of them. Kombu's own method fails there with an AttributeError, which ends the whole worker.
        """
        lost = self.connection.client is None
        if lost:
            self.connection.client = self._client
        try:
            return super()._connparams(asynchronous)
        finally:
            if lost:
                self.connection.client = None


class Transport(redis.Transport):
    """The Redis transport of Kombu, with the channel above."""

    Channel = Channel


class JobsConnection(kombu.Connection):
    """A connection that replaces Kombu's Redis transport with the one above; pools copy this behaviour."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.get_transport_cls() is redis.Transport:
            self.transport_cls = Transport

    def info(self) -> dict[str, Any]:
        """Return what ``inspect stats``, logs and Flower show. They can't show the class that Kombu would give."""
        about: dict[str, Any] = super().info()
        if about["transport"] is Transport:
            about["transport"] = "rediss" if self.ssl else "redis"
        return about


class AMQP(amqp.AMQP):
    """Celery's AMQP class, with the connection above."""

    Connection = JobsConnection
    BrokerConnection = JobsConnection

    @property
    def confirming_pool(self) -> Any:
        """Producers that wait until RabbitMQ confirms each message. Redis answers every command, so any producer will
        do.
        """
        if kind_of(self.app.conf.broker_url) != "rabbitmq":
            return self.producer_pool
        return pools.producers[self.app.connection_for_write(transport_options={"confirm_publish": True})]
