"""A Redis or Valkey server of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from tests.harness.servers.programs import Kind
from tests.harness.servers.redis_process import Instance, quoted
from tests.harness.servers.resp import Address, Reply, ask


class RedisServer(Instance):
    """Keeps nothing on disk unless told to: ``appendonly=True`` writes each command before it is answered.

    - ``appendfsync``: when what was written is also synced; ``always`` is the only one that loses nothing.
    - ``password``: without it the server refuses all commands.
    - ``maxmemory``: such as ``5mb``; beyond it, writes are refused.
    - ``unix``: it listens at a socket in its folder and at no port.
    - ``certificate``: a PEM file with certificate and key; the port then speaks TLS only.
    - ``replica_of``: another server, of the same password, whose read-only copy this one is.
    - ``settings``: anything else from ``redis.conf``, as it is written there.
    """

    def __init__(
        self,
        kind: Kind = "any",
        *,
        appendonly: bool = False,
        appendfsync: Literal["always", "everysec", "no"] = "always",
        password: str = "",
        maxmemory: str = "",
        unix: bool = False,
        certificate: Path | None = None,
        replica_of: RedisServer | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        chosen = {"save": '""', "appendonly": "yes" if appendonly else "no", "appendfsync": appendfsync}
        if password:
            chosen |= {"requirepass": quoted(password), "masterauth": quoted(password)}
        if maxmemory:
            chosen["maxmemory"] = maxmemory
        if replica_of:
            chosen["replicaof"] = f"127.0.0.1 {replica_of.port}"
        super().__init__(kind, {**chosen, **(settings or {})}, password=password)
        self._unix = unix
        self._certificate = certificate
        self._replica_of = replica_of

    @property
    def url(self) -> str:
        """The address of its database 0, as Uttu takes it."""
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        if self._unix:
            return f"redis+unix://{login}{self.address}?db=0"
        return f"{'rediss' if self._certificate else 'redis'}://{login}127.0.0.1:{self.port}/0"

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self.process.folder / "socket" if self._unix else ("127.0.0.1", self.port)

    def ask(self, *words: str | int) -> Reply:
        """As :meth:`Instance.ask`; a certificate is not checked."""
        return ask(self.address, *words, password=self.password, tls=self._certificate is not None)

    def restart(self) -> None:
        """As :meth:`Instance.restart`; a replica then has its primary's data again."""
        super().restart()
        if self._replica_of and self._replica_of.process.is_running:
            self.process.wait_until(self._is_in_step, "copy its primary")

    def _all_settings(self, folder: Path) -> dict[str, str]:
        settings = super()._all_settings(folder)
        if self._unix:
            settings |= {"port": "0", "unixsocket": str(folder / "socket"), "unixsocketperm": "700"}
        if self._certificate:
            file = str(self._certificate)
            settings |= {"port": "0", "tls-port": str(self.port), "tls-cert-file": file, "tls-key-file": file}
            settings |= {"tls-ca-cert-file": file, "tls-auth-clients": "no"}
        return settings

    def _is_in_step(self) -> bool:
        info = self.info("replication")
        return info["role"] == "master" or info["master_link_status"] == "up"  # a sentinel may have promoted it
