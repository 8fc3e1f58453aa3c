"""A RabbitMQ server of one's own, with its management API.

Erlang nodes find each other by ``epmd``, a small server that the first node of a machine starts for all, for good, at
all addresses. Here it is a server like the others: on a private port, at loopback, gone with its maker.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.parse import quote

from tests.harness.servers.base import Life, Server
from tests.harness.servers.errors import ServerMissing
from tests.harness.servers.ports import Port
from tests.harness.servers.process import ServerProcess

_COOKIE: Final = "uttu"
_PLUGINS: Final = "[rabbitmq_management,rabbitmq_consistent_hash_exchange]."


def _root() -> Path:
    """Where the packages are unpacked: see tools/rabbitmq. :raises ServerMissing: RabbitMQ is nowhere."""
    for root in (Path(sys.prefix, "servers", "rabbitmq"), Path("/")):
        if (root / "usr/lib/rabbitmq/bin/rabbitmq-server").exists():
            return root
    raise ServerMissing("RabbitMQ is not installed; get it with `make setup` or `apt-get install rabbitmq-server`")


def _environment(root: Path) -> dict[str, str]:
    if root == Path("/"):
        return {"PATH": os.environ["PATH"]}
    libraries = ":".join(str(folder) for folder in (root / "usr/lib").glob("*-linux-gnu"))
    return {
        "PATH": f"{root}/usr/bin:{os.environ['PATH']}",
        "ERL_LIBS": f"{root}/usr/lib/erlang/lib",
        "LD_LIBRARY_PATH": libraries,
    }


class Epmd(Life):
    """Tells Erlang nodes where the others are."""

    def __init__(self) -> None:
        super().__init__()
        self._port = Port()
        self.port = self._port.number
        self._root = _root()

    def _begin(self, running: ExitStack) -> None:
        running.callback(self._port.release)
        process = ServerProcess(f"epmd at port {self.port}", self._command)
        running.callback(process.close)
        process.start(lambda: _listens(self.port))

    def _command(self, folder: Path) -> Sequence[str]:
        environment = _environment(self._root)
        program = shutil.which("epmd", path=environment["PATH"])
        if program is None:
            raise ServerMissing("epmd is not installed; it comes with Erlang")
        return [*_env(environment), program, "-port", str(self.port), "-address", "127.0.0.1"]


class RabbitServer(Server):
    """Starts on entering the block and is gone on leaving it; in between it may be stopped, killed and restarted.

    - ``certificate``: a PEM file with certificate and key; ``tls_port`` then speaks TLS.
    - ``settings``: of ``rabbitmq.conf``, as they are written there.
    - ``beside``: a node that is entered already, whose cluster this one joins; ``epmd`` must be the same.

    :raises ServerMissing: when made, if it is not installed.
    :raises ServerError: on entering or restarting, if it does not come to answer.
    """

    def __init__(
        self,
        *,
        certificate: Path | None = None,
        settings: Mapping[str, str] | None = None,
        epmd: Epmd | None = None,
        beside: RabbitServer | None = None,
    ) -> None:
        super().__init__()
        self._root = _root()
        self._ports = [Port() for _ in range(4)]
        self.port, self.management_port, self._distribution_port, self.tls_port = (each.number for each in self._ports)
        self.name = f"uttu{self.port}@localhost"
        self._epmd = epmd
        self._certificate = certificate
        self._settings = dict(settings or {})
        if beside:
            self._settings |= {
                "cluster_formation.peer_discovery_backend": "classic_config",
                "cluster_formation.classic_config.nodes.1": beside.name,
                "cluster_formation.classic_config.nodes.2": self.name,
            }

    def _begin(self, running: ExitStack) -> None:
        for port in self._ports:
            running.callback(port.release)
        self._epmd = self._epmd or running.enter_context(Epmd())
        self._process = ServerProcess(f"RabbitMQ at port {self.port}", self._command)
        running.callback(self._process.close)
        running.callback(self._process.kill)  # what it would save is removed anyway
        self.restart()

    @property
    def url(self) -> str:
        """As Uttu takes it, with the management API."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/?management={self.management_url}"

    @property
    def management_url(self) -> str:
        return f"http://guest:guest@127.0.0.1:{self.management_port}"

    def ask(self, method: str, path: str, body: object = None) -> object:
        """The answer of its management API; ``path`` is what follows ``/api/``.

        :raises OSError: it can't be reached, or says no.
        """
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.management_port}/api/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Basic {b64encode(b'guest:guest').decode()}",
                "Content-Type": "application/json",
            },
            method=method,
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as response:
            text = response.read()
        return json.loads(text) if text else None

    def add_vhost(self, vhost: str) -> None:
        """With all rights for the user guest."""
        self.ask("PUT", f"vhosts/{quote(vhost, safe='')}")
        self.allow("guest", vhost)

    def add_user(self, user: str, password: str) -> None:
        """Who may do nothing until allowed, not even use the management API."""
        self.ask("PUT", f"users/{quote(user, safe='')}", {"password": password, "tags": ""})

    def allow(self, user: str, vhost: str, *, configure: str = ".*", write: str = ".*", read: str = ".*") -> None:
        """What a user may declare, publish to and consume from, as regular expressions for names."""
        rights = {"configure": configure, "write": write, "read": read}
        self.ask("PUT", f"permissions/{quote(vhost, safe='')}/{quote(user, safe='')}", rights)

    def _command(self, folder: Path) -> Sequence[str]:
        assert self._epmd
        cookie = folder / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text(_COOKIE)
            cookie.chmod(0o400)
            (folder / "plugins").write_text(_PLUGINS)
            lines = [f"{name} = {value}" for name, value in self._all_settings().items()]
            (folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        environment = _environment(self._root) | {
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd.port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_LOGS": "-",
            # Its script then becomes the server, rather than to start and watch it: who kills it kills the server.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
        return [*_env(environment), str(self._root / "usr/lib/rabbitmq/bin/rabbitmq-server")]

    def _all_settings(self) -> dict[str, str]:
        settings = {
            "listeners.tcp.1": f"127.0.0.1:{self.port}",
            "management.tcp.ip": "127.0.0.1",
            "management.tcp.port": str(self.management_port),
            "collect_statistics_interval": "300",
            "log.console.level": "warning",
        }
        if self._certificate:
            settings |= {
                "listeners.ssl.1": f"127.0.0.1:{self.tls_port}",
                "ssl_options.cacertfile": str(self._certificate),
                "ssl_options.certfile": str(self._certificate),
                "ssl_options.keyfile": str(self._certificate),
            }
        return settings | self._settings

    def _answers(self) -> bool:
        try:
            return _listens(self.port) and bool(self.ask("GET", "overview"))
        except (URLError, OSError):
            return False


def _env(environment: Mapping[str, str]) -> list[str]:
    """The command that starts another with these variables alone."""
    return ["/usr/bin/env", "-i", *[f"{name}={value}" for name, value in environment.items()]]


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True
