"""A Kafka broker of one's own, which is its own controller (KRaft): ``with KafkaServer() as server: server.url``.

Its programs come by ``tools/kafka``, which ``make setup`` calls. What ``kafka-storage format`` would write is written
here: it is four lines, and a second start of Java less.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tests.harness.servers.base import Server
from tests.harness.servers.errors import ServerMissing
from tests.harness.servers.ports import Port
from tests.harness.servers.process import ServerProcess

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_CLUSTER: Final = "d2VmdC10ZXN0cy1rYWZrYQ"

# Small and quick: one machine has several of them, and tests beside.
_SETTINGS: Final = {
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "1",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.index.size.max.bytes": "1048576",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "controller.quorum.election.timeout.ms": "500",
}

_JAVA: Final = (
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


def kafka_libraries() -> Path:
    """The folder of Kafka's libraries, of the newest version that is there.

    :raises ServerMissing: there is none, or no Java.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "uttu")
    found = sorted(cache.glob("kafka-*"), key=lambda path: [int(n) for n in path.name[6:].split(".") if n.isdigit()])
    if not found or not shutil.which("java"):
        raise ServerMissing(
            "Kafka or Java is not installed; get them with `make setup` as root, or install Java 17 and Maven before"
        )
    return found[-1]


class KafkaServer(Server):
    """Starts on entering the block and is gone on leaving it; in between it may be killed, restarted and paused.

    - ``users``: names and passwords; all have to log in then. The first may do everything, others nothing.
    - ``certificate``: a PEM file with certificate and key; it listens with TLS at ``tls_port``, too.
    - ``settings``: anything else from ``server.properties``.

    :raises ServerMissing: when made, if it is not installed.
    :raises ServerError: on entering or restarting, if it does not come to answer.
    """

    def __init__(
        self,
        *,
        users: Mapping[str, str] | None = None,
        certificate: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.node = 1
        self.users = dict(users or {})
        self._certificate = certificate
        self._ports = (Port(), Port(), Port())
        self.port, self.controller, self.tls_port = (port.number for port in self._ports)
        self._libraries = kafka_libraries()
        self._settings = dict(settings or {})
        self._quorum: Sequence[KafkaServer] = (self,)
        self._asking: AdminClient | None = None

    def _begin(self, running: ExitStack) -> None:
        self.start(running)
        self.wait()

    @property
    def url(self) -> str:
        """As Uttu takes it, with the login of the first user."""
        return f"kafka://{self.login}127.0.0.1:{self.port}"

    @property
    def login(self) -> str:
        return next((f"{quote(user, safe='')}:{quote(word, safe='')}@" for user, word in self.users.items()), "")

    def start(self, running: ExitStack) -> None:
        """Without waiting until it serves."""
        for port in self._ports:
            running.callback(port.release)
        self._process = ServerProcess(f"Kafka at port {self.port}", self._command)
        running.callback(self._process.close)
        running.callback(self._process.kill)  # an orderly end takes seconds, for data that nobody wants
        self._process.start(lambda: True)

    def wait(self) -> None:
        """Until it serves, and knows all others of its cluster that run.

        :raises ServerError: it ended, or it took too long.
        """
        self.process.wait_until(self._answers, "serve")

    def join(self, number: int, quorum: Sequence[KafkaServer]) -> None:
        """Be one of a cluster; before it is started."""
        self.node = number
        self._quorum = quorum

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        self._asking = self._asking or self._client()
        try:
            known = self._asking.list_topics(timeout=0.2).brokers
        except KafkaException:
            return False
        if not all(node.node in known for node in self._quorum if node.process.is_running):
            return False
        self._asking = None  # it would hold on to a connection
        return True

    def _client(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0}
        settings |= {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
        for user, password in list(self.users.items())[:1]:
            settings |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
            settings |= {"sasl.username": user, "sasl.password": password}
        return AdminClient(settings)

    def _command(self, folder: Path) -> list[str]:
        data, file = folder / "data", folder / "server.properties"
        if not data.exists():
            data.mkdir()
            place = f"version=1\ncluster.id={_CLUSTER}\nnode.id={self.node}\n"
            (data / "meta.properties").write_text(place)
            file.write_text("".join(f"{name}={value}\n" for name, value in self._all_settings(data).items()))
        return ["java", *_JAVA, "-cp", f"{self._libraries}/*", "kafka.Kafka", str(file)]

    def _all_settings(self, data: Path) -> dict[str, str]:
        count = str(len(self._quorum))
        voters = ",".join(f"{node.node}@127.0.0.1:{node.controller}" for node in self._quorum)
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(self.node),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "BROKER",
            "log.dirs": str(data),
            "default.replication.factor": count,
            "offsets.topic.replication.factor": count,
            "transaction.state.log.replication.factor": count,
            "share.coordinator.state.topic.replication.factor": count,
            "min.insync.replicas": str(len(self._quorum) // 2 + 1),
            "transaction.state.log.min.isr": str(len(self._quorum) // 2 + 1),
            **_SETTINGS,
        }
        return settings | self._listeners() | (self._logins() if self.users else {}) | self._settings

    def _listeners(self) -> dict[str, str]:
        login = "SASL_" if self.users else ""
        ports = {"BROKER": (self.port, f"{login}PLAINTEXT"), "CONTROLLER": (self.controller, "PLAINTEXT")}
        settings = {}
        if self._certificate:
            ports["SECURE"] = (self.tls_port, f"{login}SSL")
            settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._certificate)}
        settings["listeners"] = ",".join(f"{name}://127.0.0.1:{port}" for name, (port, _) in ports.items())
        settings["listener.security.protocol.map"] = ",".join(f"{name}:{how}" for name, (_, how) in ports.items())
        return settings

    def _logins(self) -> dict[str, str]:
        first, password = next(iter(self.users.items()))
        known = " ".join(f'user_{user}="{word}"' for user, word in self.users.items())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        logins = f'{module} username="{first}" password="{password}" {known};'
        return {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.broker.plain.sasl.jaas.config": logins,
            "listener.name.secure.plain.sasl.jaas.config": logins,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{first};User:ANONYMOUS",
        }
