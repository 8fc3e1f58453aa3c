"""A Bus on RabbitMQ: ``bus`` puts together ``link`` (the connection), ``publisher`` and ``source`` (a subscriber);
``layout`` says what is declared on the broker, ``wire`` how a message looks there."""

from weft.bus.rabbitmq.bus import RabbitBus

__all__ = ["RabbitBus"]
