"""A ZooKeeper server of one's own, alone or in an ensemble: ``with ZooKeeperServer() as server: server.url``.

Its libraries come by ``tools/zookeeper``, which ``make setup`` calls.
"""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.harness.servers.base import Life, Server
from tests.harness.servers.errors import ServerMissing
from tests.harness.servers.ports import Port
from tests.harness.servers.process import ServerProcess

_TICK_MS: Final = 200
_JAVA: Final = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def _find_libraries() -> list[str]:
    """The folders of the libraries, those that were unpacked first.

    :raises ServerMissing: there are none, or there is no Java.
    """
    folders = [Path(sys.prefix, "servers", "zookeeper", "usr/share/java"), Path("/usr/share/java")]
    found = [str(folder) for folder in folders if folder.is_dir()]
    if not any(Path(folder, "zookeeper.jar").exists() for folder in found) or not shutil.which("java"):
        raise ServerMissing(
            "ZooKeeper or Java is not installed; get them with `make setup` as root, or `apt-get install zookeeper`"
        )
    return found


class ZooKeeperServer(Server):
    """Starts on entering the block and is gone on leaving it; in between it may be killed, restarted and paused.

    :param settings: anything else from ``zoo.cfg``.
    :raises ServerMissing: when made, if it is not installed.
    :raises ServerError: on entering or restarting, if it does not come to answer.
    """

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._ports = (Port(), Port(), Port())
        self.port, self.peer_port, self.election_port = (port.number for port in self._ports)
        self._settings = dict(settings or {})
        self._libraries = _find_libraries()
        self._ensemble: Sequence[ZooKeeperServer] = ()

    @property
    def url(self) -> str:
        return f"zookeeper://127.0.0.1:{self.port}"

    @property
    def mode(self) -> str:
        """``standalone``, ``leader`` or ``follower``; empty if it does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return ""
        lines = answer.decode().splitlines()
        return next((line.removeprefix("Mode: ") for line in lines if line.startswith("Mode: ")), "")

    def join(self, ensemble: Sequence[ZooKeeperServer]) -> None:
        """Be one of an ensemble; before it is started."""
        self._ensemble = ensemble

    def start(self, running: ExitStack) -> None:
        """Without waiting until it serves: the first of an ensemble can't before the second."""
        for port in self._ports:
            running.callback(port.release)
        self._process = ServerProcess(f"ZooKeeper at port {self.port}", self._command)
        running.callback(self._process.close)
        running.callback(self._process.kill)
        self._process.start(lambda: True)

    def wait(self) -> None:
        """Until it serves.

        :raises ServerError: it ended, or it took too long.
        """
        self.process.wait_until(self._answers, "serve")

    def _begin(self, running: ExitStack) -> None:
        self.start(running)
        self.wait()

    def _answers(self) -> bool:
        return self.mode != ""

    def _command(self, folder: Path) -> list[str]:
        settings = {
            "tickTime": str(_TICK_MS),
            "initLimit": "50",
            "syncLimit": "20",
            "minSessionTimeout": "400",
            "maxSessionTimeout": "60000",
            "dataDir": str(folder / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            "maxClientCnxns": "0",
            "autopurge.purgeInterval": "0",
            **self._settings,
        }
        (folder / "data").mkdir(exist_ok=True)
        for number, server in enumerate(self._ensemble, 1):
            settings[f"server.{number}"] = f"127.0.0.1:{server.peer_port}:{server.election_port}"
            if server is self:
                (folder / "data/myid").write_text(f"{number}\n")
        file = folder / "zoo.cfg"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        libraries = ":".join(f"{each}/*" for each in self._libraries)
        return ["java", *_JAVA, "-Dzookeeper.log.dir=.", "-cp", libraries, _MAIN, str(file)]


class ZooKeeperEnsemble(Life):
    """Three servers that agree; one may fail."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.servers = [ZooKeeperServer() for _ in range(count)]

    @property
    def url(self) -> str:
        return "zookeeper://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    @property
    def leader(self) -> ZooKeeperServer:
        return next(server for server in self.servers if server.mode == "leader")

    def _begin(self, running: ExitStack) -> None:
        for server in self.servers:
            server.join(self.servers)
            server.start(running)
        for server in self.servers:
            server.wait()
