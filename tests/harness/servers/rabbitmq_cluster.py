"""A RabbitMQ cluster of one's own: three nodes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from tests.harness.servers.base import Life
from tests.harness.servers.rabbitmq import Epmd, RabbitServer


class RabbitCluster(Life):
    """``nodes`` can be killed and restarted one by one; :meth:`wait` returns when all know each other again."""

    def __init__(self, *, nodes: int = 3, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._epmd = Epmd()
        first = RabbitServer(epmd=self._epmd, settings=settings)
        others = (RabbitServer(epmd=self._epmd, settings=settings, beside=first) for _ in range(nodes - 1))
        self.nodes = (first, *others)

    def _begin(self, running: ExitStack) -> None:
        for part in (self._epmd, *self.nodes):
            running.enter_context(part)
        self.wait()

    @property
    def url(self) -> str:
        """All nodes, as Uttu takes them, and the management API of the last."""
        places = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"amqp://guest:guest@{places}/?management={self.nodes[-1].management_url}"

    def wait(self) -> None:
        """:raises ServerError: a node has ended, or it took too long."""
        for node in self.nodes:
            node.process.wait_until(partial(self._is_whole, node), "see the cluster whole")

    def _is_whole(self, node: RabbitServer) -> bool:
        try:
            known = node.ask("GET", "nodes?columns=name,running")
        except OSError:
            return False
        assert isinstance(known, list)
        return sum(bool(each["running"]) for each in known) == len(self.nodes)
