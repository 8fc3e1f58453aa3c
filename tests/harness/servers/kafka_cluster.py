"""Three Kafka brokers that keep every message on all of them, and confirm it when two have it."""

from __future__ import annotations

from contextlib import ExitStack

from tests.harness.servers.base import Life
from tests.harness.servers.kafka import KafkaServer


class KafkaCluster(Life):
    """``nodes`` can be killed and restarted one by one: with one away the others serve."""

    def __init__(self, nodes: int = 3) -> None:
        super().__init__()
        self.nodes = tuple(KafkaServer() for _ in range(nodes))
        for number, node in enumerate(self.nodes, 1):
            node.join(number, self.nodes)

    def _begin(self, running: ExitStack) -> None:
        for node in self.nodes:
            node.start(running)
        for node in self.nodes:
            node.wait()

    @property
    def url(self) -> str:
        """All nodes, as Uttu takes them."""
        return "kafka://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
