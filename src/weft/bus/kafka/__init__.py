"""A Bus on Apache Kafka: ``bus`` puts together ``catalog`` (the topics), ``sender`` (a thread that produces) and, for
each subscriber, a ``reader`` (which consumes, with a thread to wait in) and its ``source`` (what is held and done), to
which messages come by the ``run``; ``overview`` looks at the groups, and ``wire`` says how a message looks there."""

from weft.bus.kafka.bus import KafkaBus

__all__ = ["KafkaBus"]
