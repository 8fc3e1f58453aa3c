"""The URL of a RabbitMQ server or cluster, with its options.

``amqp://USER:PASSWORD@HOST:PORT,HOST2:PORT/VHOST?exchange=uttu&queues=quorum``; ``amqps://`` for TLS.

Defaults: the login ``guest:guest``, the host ``localhost``, the port 5672 (5671 for TLS) and the vhost ``/``. Several
hosts are nodes of one cluster. Percent-encode special characters in the login and the vhost.
"""

from __future__ import annotations

import re
import socket
import ssl
from os import getpid
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from uttu.clients.addresses import mask_password
from uttu.errors import ConfigError

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_MANAGEMENT: Final = {"amqp": ("http", 15672), "amqps": ("https", 15671)}
_exchange: Final = re.compile(r"[A-Za-z0-9_-]{1,40}").fullmatch


class AmqpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options after the ``?`` of a URL.

    - ``exchange``: the name of the bus, and the prefix of all its exchanges and queues.
    - ``queues``: the type of a group's queues. ``classic`` queues support priorities and live on one node;
      ``quorum`` queues are replicated.
    - ``timeout``: seconds to wait for an answer, also while the connection is lost.
    - ``attempts``: how many times to try all nodes after the connection is lost, 0 for no limit; ``delay``: seconds
      between two tries.
    - ``heartbeat``: seconds between heartbeats. The connection counts as lost after about three intervals of silence.
    - ``management``: the URL of the management API, with its login.
    - ``cafile``, ``certfile``, ``keyfile``: PEM files for TLS; ``verify=no`` accepts any certificate.
    """

    exchange: str = "uttu"
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


class AmqpAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL. ``nodes`` are pairs of host and port."""

    scheme: str
    nodes: tuple[tuple[str, int], ...]
    user: str
    password: str
    vhost: str
    options: AmqpOptions

    def node_url(self, node: tuple[str, int]) -> str:
        """Return the URL of one node, as aiormq takes it."""
        path = "/" + quote(self.vhost, safe="") if self.vhost != "/" else "/"
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        query = f"heartbeat={self.options.heartbeat}&name={quote(f'uttu {socket.gethostname()} {getpid()}')}"
        host = f"[{node[0]}]" if ":" in node[0] else node[0]
        return f"{self.scheme}://{login}@{host}:{node[1]}{path}?{query}"

    def management_url(self, node: tuple[str, int]) -> tuple[str, str, str]:
        """Return the URL of the management API without its login, the user and the password.

        :param node: if the option ``management`` is not set, the API is expected on this host.
        """
        if not self.options.management:
            scheme, port = _MANAGEMENT[self.scheme]
            return f"{scheme}://{node[0]}:{port}", self.user, self.password
        login, host = _parse_login(self.options.management.partition("://")[2])
        scheme = self.options.management.partition("://")[0]
        user, password = login or (self.user, self.password)
        return f"{scheme}://{host.rstrip('/')}", user, password

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None for ``amqp://``.

        :raises ConfigError: a file can't be read, or is not a valid PEM file.
        """
        if self.scheme != "amqps":
            return None
        options = self.options
        try:
            context = ssl.create_default_context(cafile=options.cafile or None)
            if options.certfile:
                context.load_cert_chain(options.certfile, options.keyfile or None)
        except OSError as error:  # ssl.SSLError for a malformed file is an OSError, too
            raise ConfigError(
                f"Cannot use the TLS files {options.cafile} {options.certfile} {options.keyfile}: {error}"
            ) from error
        if options.verify == "no":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def parse_address(url: str) -> AmqpAddress:
    """Parse the URL of a RabbitMQ server.

    :raises ConfigError: the URL is malformed, or an option is unknown or has an invalid value.
    """
    try:
        parts = urlsplit(url)
        login, hosts = _parse_login(parts.netloc)
        user, password = login or ("guest", "guest")
        options = msgspec.convert(
            dict(parse_qsl(parts.query, strict_parsing=bool(parts.query))), _StrictOptions, strict=False
        )
        if not _exchange(options.exchange):
            raise ValueError(f"exchange={options.exchange!r}: write one word of letters, digits, _ and -")
        return AmqpAddress(
            scheme=parts.scheme.lower(),
            nodes=tuple(_parse_node(host, _PORTS[parts.scheme.lower()]) for host in (hosts or "localhost").split(",")),
            user=user,
            password=password,
            vhost=unquote(parts.path[1:]) or "/",
            options=options,
        )
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{mask_password(url)} is not the address of a RabbitMQ server: {error}") from error


class _StrictOptions(AmqpOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


def _parse_login(netloc: str) -> tuple[tuple[str, str] | None, str]:
    login, separator, hosts = netloc.rpartition("@")
    if not separator:
        return None, hosts
    user, _, password = login.partition(":")
    return (unquote(user), unquote(password)), hosts


def _parse_node(text: str, default: int) -> tuple[str, int]:
    match = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?", text)
    if not match:
        raise ValueError(f"{text!r} is not HOST or HOST:PORT")
    return match[1].strip("[]"), int(match[2] or default)
