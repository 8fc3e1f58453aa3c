"""A primary, its replicas and the sentinels that watch over them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from tests.harness.servers.base import Life
from tests.harness.servers.programs import Kind
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.redis_process import Instance, quoted
from tests.harness.servers.resp import CommandRefused

NAME = "uttu"
"""What the sentinels call the primary."""


class RedisSentinel(Life):
    """One of ``servers`` is the :attr:`primary`. When it goes away, the ``sentinels`` make another one so.

    - ``down_after_ms``: after so long a primary that does not answer is taken to be down.
    - ``appendonly``, ``password``: as for :class:`RedisServer`; the sentinels themselves ask for none.
    """

    def __init__(
        self,
        kind: Kind = "any",
        *,
        replicas: int = 1,
        sentinels: int = 1,
        appendonly: bool = False,
        password: str = "",
        down_after_ms: int = 1_000,
    ) -> None:
        super().__init__()
        settings = {"repl-diskless-sync-delay": "0"}
        first = RedisServer(kind, appendonly=appendonly, password=password, settings=settings)
        others = (
            RedisServer(kind, appendonly=appendonly, password=password, replica_of=first, settings=settings)
            for _ in range(replicas)
        )
        self.servers = (first, *others)
        watch = {
            "sentinel monitor": f"{NAME} 127.0.0.1 {first.port} {sentinels // 2 + 1}",
            "sentinel down-after-milliseconds": f"{NAME} {down_after_ms}",
            "sentinel failover-timeout": f"{NAME} 5000",
        }
        if password:
            watch["sentinel auth-pass"] = f"{NAME} {quoted(password)}"
        self.sentinels = tuple(Instance(kind, watch, mode="--sentinel") for _ in range(sentinels))

    def _begin(self, running: ExitStack) -> None:
        for instance in (*self.servers, *self.sentinels):
            running.enter_context(instance)
        self.wait()

    @property
    def url(self) -> str:
        """The sentinels and the name they know the primary by, as Uttu takes them."""
        login, _, _ = self.servers[0].url.removeprefix("redis://").rpartition("127.0.0.1")
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{login}{places}/{NAME}/0"

    @property
    def primary(self) -> RedisServer:
        """The one the first sentinel names."""
        place = self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        assert isinstance(place, list)
        return next(server for server in self.servers if str(server.port) == place[1])

    def wait(self) -> None:
        """Until every sentinel knows all that are there, and could make a replica the primary.

        :raises ServerError: a sentinel has ended, or it took too long.
        """
        for sentinel in self.sentinels:
            sentinel.process.wait_until(partial(self._knows_all, sentinel), "find the others")

    def wait_for_another(self, former: RedisServer) -> RedisServer:
        """Until the sentinels have made a server other than ``former`` the primary, and it takes writes.

        :raises ServerError: they did not.
        """
        self.sentinels[0].process.wait_until(lambda: self._has_another(former), "agree on another primary")
        return self.primary

    def _knows_all(self, sentinel: Instance) -> bool:
        fields = sentinel.ask("SENTINEL", "MASTER", NAME)
        assert isinstance(fields, list)
        known = dict(zip(fields[::2], fields[1::2], strict=True))
        return (known["num-slaves"], known["num-other-sentinels"]) == (
            str(len(self.servers) - 1),
            str(len(self.sentinels) - 1),
        )

    def _has_another(self, former: RedisServer) -> bool:
        primary = self.primary
        try:
            return primary is not former and primary.info("replication")["role"] == "master"
        except (OSError, CommandRefused):
            return False
