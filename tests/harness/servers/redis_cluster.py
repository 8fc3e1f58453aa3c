"""A Redis Cluster of one's own: three nodes that share the slots evenly, without replicas.

The nodes are told what ``redis-cli --cluster create`` would tell them; that program is not in the
packages that bring Valkey.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Final

from tests.harness.servers.base import Life
from tests.harness.servers.programs import Kind
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.resp import CommandRefused

_SLOTS: Final = 16_384


class RedisCluster(Life):
    """``nodes`` can be killed and restarted one by one; the cluster serves again once :meth:`wait` returns.

    - ``appendonly``, ``password``: as for :class:`RedisServer`.
    - ``node_timeout_ms``: after so long a node that does not answer is taken to have failed, and then no slot is
      served; too short, and a busy machine looks like a failure.
    """

    def __init__(
        self,
        kind: Kind = "any",
        *,
        nodes: int = 3,
        appendonly: bool = False,
        password: str = "",
        node_timeout_ms: int = 5_000,
    ) -> None:
        super().__init__()
        settings = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(node_timeout_ms),
            "repl-diskless-sync-delay": "0",
        }
        self.nodes = tuple(
            RedisServer(kind, appendonly=appendonly, password=password, settings=settings) for _ in range(nodes)
        )

    def _begin(self, running: ExitStack) -> None:
        for node in self.nodes:
            running.enter_context(node)
        self._share_slots()

    @property
    def url(self) -> str:
        """All nodes, as Uttu takes them."""
        login, _, _ = self.nodes[0].url.removeprefix("redis://").rpartition("127.0.0.1")
        return f"redis+cluster://{login}" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def wait(self) -> None:
        """Until every node serves and knows of all others that they do.

        :raises ServerError: a node has ended, or it took too long.
        """
        for node in self.nodes:
            node.process.wait_until(partial(self._is_whole, node), "see the cluster whole")

    def _share_slots(self) -> None:
        count = len(self.nodes)
        for number, node in enumerate(self.nodes):
            first, last = number * _SLOTS // count, (number + 1) * _SLOTS // count - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
        self.wait()

    def _is_whole(self, node: RedisServer) -> bool:
        try:
            lines = str(node.ask("CLUSTER", "INFO")).splitlines()
            nodes = str(node.ask("CLUSTER", "NODES")).splitlines()
        except (OSError, CommandRefused):
            return False
        info = dict(line.split(":", 1) for line in lines)
        # Fields of a node: id, address, flags, primary, ping, pong, epoch, link, slots.
        linked = [line for line in nodes if line.split()[7] == "connected" and "fail" not in line.split()[2]]
        return info["cluster_state"] == "ok" and len(linked) == len(self.nodes)
