"""The bus on Apache Kafka.

``bus`` combines the parts: ``codec`` converts messages, ``producer`` publishes in a thread, ``admin`` creates topics
and inspects groups with ``offsets``.

Each subscriber has a ``consumer``, which belongs to the event loop, and a ``reader`` with a thread for calls that
block; ``reader`` says what the two share. ``partition`` has the state of each partition, and ``assignment`` the two
ways to get partitions: as a member of a group, or all of them.
"""

from uttu.bus.kafka.bus import KafkaBus

__all__ = ["KafkaBus"]
