"""Three Kafka brokers that keep every message on all of them, and confirm it when two have it."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from weft.testing.servers.kafka import KafkaServer


class KafkaCluster:
    """``nodes`` can be killed and restarted one by one: with one away the others serve."""

    def __init__(self, nodes: int = 3) -> None:
        self.nodes = tuple(KafkaServer() for _ in range(nodes))
        for number, node in enumerate(self.nodes, 1):
            node.join(number, self.nodes)
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for node in self.nodes:
                starting.callback(node.close)
                node.start()
            for node in self.nodes:
                node.wait()
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    @property
    def url(self) -> str:
        """All nodes, as Weft takes them."""
        return "kafka://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
