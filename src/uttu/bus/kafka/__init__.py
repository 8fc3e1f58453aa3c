"""The bus on Apache Kafka.

``bus`` combines the parts: ``codec`` converts messages, ``producer`` publishes in a thread, ``admin`` creates topics
and inspects groups with ``offsets``. Each subscriber has a ``consumer``, which lives in the event loop, a ``reader``
with a thread for calls that block, and one state per ``partition``.
"""

from uttu.bus.kafka.bus import KafkaBus

__all__ = ["KafkaBus"]
