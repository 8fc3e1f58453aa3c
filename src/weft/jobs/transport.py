"""Priorities with one meaning on every broker: 0 to 9, 9 first.

Celery on Redis keeps a list for each priority and asks for them in ascending order, so that 0 is first, the reverse
of RabbitMQ. Here they are asked for in descending order. The names of the lists stay as they are, and the number in a
message is the one that was given: a retry, which copies it, keeps it.
"""

from __future__ import annotations

from typing import Any

import kombu
from celery.app import amqp
from kombu import pools
from kombu.transport import redis

from weft.jobs.defaults import HIGHEST_PRIORITY
from weft.jobs.settings import kind_of


class Channel(redis.Channel):
    """Redis, with the highest priority first."""

    priority_steps = list(range(HIGHEST_PRIORITY, -1, -1))

    def __init__(self, connection: Any, *args: Any, **options: Any) -> None:
        self._client = connection.client
        super().__init__(connection, *args, **options)

    def priority(self, n: int) -> int:
        """The list for a priority. Kombu's own looks for it in ascending steps."""
        return max(0, min(n, HIGHEST_PRIORITY))

    def _connparams(self, asynchronous: bool = False) -> Any:
        """Where the server is; also for a channel whose connection was lost.

        Celery then takes the connection to pieces and closes its channels afterwards, and a task that was running
        acknowledges its message on one of them later. Kombu's own fails there with an AttributeError, and with it the
        whole worker.
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
    """Redis, with the channel above."""

    Channel = Channel


class Connection(kombu.Connection):
    """A connection that takes the transport above where Kombu would take its own; copies of it in pools do likewise."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.get_transport_cls() is redis.Transport:
            self.transport_cls = Transport

    def as_uri(self, *args: Any, **options: Any) -> str:
        """The URL, for logs and for Flower. Kombu would write the name of the class for its scheme."""
        return str(super().as_uri(*args, **options)).replace(str(Transport), "rediss" if self.ssl else "redis")


class AMQP(amqp.AMQP):
    """Celery's, with the connection above."""

    Connection = Connection
    BrokerConnection = Connection

    @property
    def confirming_pool(self) -> Any:
        """Producers that wait for RabbitMQ to confirm each message; on Redis, where every command is answered, any."""
        if kind_of(self.app.conf.broker_url) != "rabbitmq":
            return self.producer_pool
        return pools.producers[self.app.connection_for_write(transport_options={"confirm_publish": True})]
