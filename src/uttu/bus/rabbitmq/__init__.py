"""The bus on RabbitMQ.

``topology`` declares exchanges and queues, ``codec`` converts messages, ``producer`` publishes, ``consumer`` is one
subscriber, ``management`` lists queues over HTTP, and ``bus`` combines them. The connection is in
:mod:`uttu.clients.amqp`.
"""

from uttu.bus.rabbitmq.bus import RabbitBus

__all__ = ["RabbitBus"]
