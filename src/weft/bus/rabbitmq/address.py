"""The URL of a RabbitMQ server or cluster, with its options.

``amqp://USER:PASSWORD@HOST:PORT,HOST2:PORT/VHOST?exchange=weft&queues=quorum``; ``amqps://`` for TLS.
"""

from __future__ import annotations

import re
import socket
import ssl
from os import getpid
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from weft.drivers.urls import masked
from weft.errors import ConfigError

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_MANAGEMENT: Final = {"amqp": ("http", 15672), "amqps": ("https", 15671)}
_exchange: Final = re.compile(r"[A-Za-z0-9_-]{1,40}").fullmatch


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What may follow the ``?``.

    - ``exchange``: the name of the bus; all that it has on the broker begins with it.
    - ``queues``: what holds the messages of a group. ``classic`` knows priorities, and is on one node only.
    - ``timeout``: how many seconds an answer is waited for, also while the connection is away.
    - ``attempts``, ``delay``: how often all nodes are tried again once the connection is lost, for ever if 0, and the
      seconds between.
    - ``heartbeat``: seconds; a connection is given up when nothing was heard for about three of them.
    - ``management``: the URL of the management API, with its login.
    - ``cafile``, ``certfile``, ``keyfile``, ``verify``: for TLS, as files of PEM.
    """

    exchange: str = "weft"
    queues: Literal["quorum", "classic"] = "quorum"
    timeout: float = 30.0
    attempts: int = 0
    delay: float = 1.0
    heartbeat: int = 20
    management: str = ""
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    verify: Literal["yes", "no"] = "yes"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the broker is, and how it is used."""

    scheme: str
    nodes: tuple[tuple[str, int], ...]
    user: str
    password: str
    vhost: str
    options: Options

    def node_url(self, node: tuple[str, int]) -> str:
        """For the driver."""
        path = "/" + quote(self.vhost, safe="") if self.vhost != "/" else "/"
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        query = f"heartbeat={self.options.heartbeat}&name={quote(f'weft {socket.gethostname()} {getpid()}')}"
        host = f"[{node[0]}]" if ":" in node[0] else node[0]
        return f"{self.scheme}://{login}@{host}:{node[1]}{path}?{query}"

    def management_url(self, node: tuple[str, int]) -> tuple[str, str, str]:
        """The management API without its login, and the login."""
        if not self.options.management:
            scheme, port = _MANAGEMENT[self.scheme]
            return f"{scheme}://{node[0]}:{port}", self.user, self.password
        login, host = _login(self.options.management.partition("://")[2])
        scheme = self.options.management.partition("://")[0]
        user, password = login or (self.user, self.password)
        return f"{scheme}://{host.rstrip('/')}", user, password

    def tls(self) -> ssl.SSLContext | None:
        """:raises ConfigError: a file can't be read."""
        if self.scheme != "amqps":
            return None
        options = self.options
        try:
            context = ssl.create_default_context(cafile=options.cafile or None)
            if options.certfile:
                context.load_cert_chain(options.certfile, options.keyfile or None)
        except OSError as error:  # also of a file that has something else in it
            raise ConfigError(
                f"the files for TLS can't be used: {error}; see {options.cafile} {options.certfile} {options.keyfile}"
            ) from error
        if options.verify == "no":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def parse(url: str) -> Address:
    """:raises ConfigError: it is not such a URL, or an option is not one."""
    try:
        parts = urlsplit(url)
        login, hosts = _login(parts.netloc)
        user, password = login or ("guest", "guest")
        options = msgspec.convert(dict(parse_qsl(parts.query, strict_parsing=bool(parts.query))), _Given, strict=False)
        if not _exchange(options.exchange):
            raise ValueError(f"exchange={options.exchange!r}: write one word of letters, digits, _ and -")
        return Address(
            scheme=parts.scheme.lower(),
            nodes=tuple(_node(host, _PORTS[parts.scheme.lower()]) for host in (hosts or "localhost").split(",")),
            user=user,
            password=password,
            vhost=unquote(parts.path[1:]) or "/",
            options=options,
        )
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{masked(url)} is not the address of a RabbitMQ server: {error}") from error


class _Given(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


def _login(netloc: str) -> tuple[tuple[str, str] | None, str]:
    login, at, hosts = netloc.rpartition("@")
    if not at:
        return None, hosts
    user, _, password = login.partition(":")
    return (unquote(user), unquote(password)), hosts


def _node(text: str, default: int) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?", text)
    if not found:
        raise ValueError(f"{text!r} is not HOST or HOST:PORT")
    return found[1].strip("[]"), int(found[2] or default)
