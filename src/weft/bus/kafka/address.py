"""The URL of a Kafka cluster, with its options.

``kafka://USER:PASSWORD@HOST:PORT,HOST2:PORT?partitions=8``; ``kafkas://`` for TLS.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from weft.drivers.urls import masked
from weft.errors import ConfigError

_SCHEMES: Final = ("kafka", "kafkas")
_node: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]/]+)(?::(?P<port>\d{1,5}))?").fullmatch


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may follow the ``?``.

    - ``partitions``, ``replication``: of topics that are made here; a replication of 0 leaves it to the brokers. A
      topic's partitions bound how many subscribers of a group have work.
    - ``compression``: of what is published.
    - ``timeout``: how many seconds an answer is waited for, also while no broker can be reached.
    - ``session``: after so many seconds a subscriber of which nothing is heard is taken for dead, and others get what
      it held. The brokers set bounds to it, by default 6 seconds and 30 minutes.
    - ``mechanism``: how the user logs in.
    - ``cafile``, ``certfile``, ``keyfile``: for TLS, as files of PEM.
    """

    partitions: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 8
    replication: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    timeout: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 30.0
    session: Annotated[float, msgspec.Meta(ge=1, le=1800)] = 10.0
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the brokers are, and how they are used."""

    brokers: str
    tls: bool
    user: str
    password: str
    options: Options

    def client(self) -> dict[str, Any]:
        """The driver's settings that all clients have in common."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.brokers,
            "client.id": "weft",
            "security.protocol": ("SASL_" if self.user else "") + ("SSL" if self.tls else "PLAINTEXT"),
            "reconnect.backoff.max.ms": 1000,
            "socket.keepalive.enable": True,
            "socket.timeout.ms": int(max(2.0, min(60.0, self.options.timeout)) * 1000),
            "log_level": 0,  # errors and listeners tell it; the driver would print it as well
        }
        if self.user:
            settings |= {"sasl.mechanism": self.options.mechanism}
            settings |= {"sasl.username": self.user, "sasl.password": self.password}
        files = {
            "ssl.ca.location": self.options.cafile,
            "ssl.certificate.location": self.options.certfile,
            "ssl.key.location": self.options.keyfile,
        }
        return settings | {name: file for name, file in files.items() if file}


def parse(url: str) -> Address:
    """:raises ConfigError: it is not such a URL, or an option is not one."""
    try:
        parts = urlsplit(url)
        if parts.scheme.lower() not in _SCHEMES:
            raise ValueError("it begins with kafka:// or kafkas://")
        if parts.path.strip("/") or parts.fragment:
            raise ValueError(f"{parts.path or parts.fragment!r} has no meaning; topics are named elsewhere")
        login, _, hosts = parts.netloc.rpartition("@")
        user, _, password = login.partition(":")
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        options = msgspec.convert(given, Options, strict=False)
        return Address(
            brokers=",".join(_broker(text) for text in (hosts or "localhost").split(",")),
            tls=parts.scheme.lower() == "kafkas",
            user=unquote(user),
            password=unquote(password),
            options=options,
        )
    except ValueError as error:
        raise ConfigError(f"{masked(url)} is not the address of a Kafka cluster: {error}") from error


def _broker(text: str) -> str:
    found = _node(text)
    if not found:
        raise ValueError(f"{text!r} is not HOST or HOST:PORT")
    return f"{found['host']}:{found['port'] or 9092}"
