"""Addresses of ZooKeeper servers, and clients for them (package ``kazoo``).

::

    zookeeper://[USER:PASSWORD@]HOST[:2181][,HOST2…][/PATH][?OPTION=VALUE&…]

``PATH`` is the root of everything that Uttu writes (a chroot), ``/uttu`` by default. With a login, nodes can be read
and changed by this user only. Options: ``tls=true``, ``ca=FILE``, ``cert=FILE``, ``key=FILE``, ``verify=false``.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec
from kazoo.client import KazooClient
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from uttu.clients.addresses import mask_password
from uttu.errors import ConfigError

_PORT: Final = 2181
_ROOT: Final = "/uttu"
_FILES: Final = {"ca": "ca", "cert": "certfile", "key": "keyfile"}
_FLAGS: Final = {"tls": "use_ssl", "verify": "verify_certs"}
_BOOLS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
# kazoo logs each attempt to connect with its traceback; Uttu reports the state itself.
_quiet = logging.getLogger("uttu.kazoo")
_quiet.setLevel(logging.CRITICAL)


class ZooKeeperAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address, parsed. ``options`` are arguments of kazoo's client."""

    url: str
    hosts: str
    root: str
    login: str
    options: dict[str, Any]

    @classmethod
    def parse(cls, url: str) -> ZooKeeperAddress:
        """:raises ConfigError: ``url`` is not an address of ZooKeeper servers."""
        try:
            return cls._parse(url)
        except ConfigError as error:
            raise ConfigError(f"{mask_password(url)} is not an address of ZooKeeper servers: {error}") from error

    @classmethod
    def _parse(cls, url: str) -> ZooKeeperAddress:
        scheme, _, rest = url.partition("://")
        if scheme.lower() != "zookeeper":
            raise ConfigError("it must begin with zookeeper://")
        login, _, place = rest.rpartition("@")
        if login and ":" not in login:
            raise ConfigError("the login needs a user and a password: zookeeper://USER:PASSWORD@HOST")
        place, _, query = place.partition("?")
        hosts, _, path = place.partition("/")
        options: dict[str, Any] = {}
        for name, text in parse_qsl(query, keep_blank_values=True):
            if name in _FLAGS:
                if text.lower() not in _BOOLS:
                    raise ConfigError(f"{name}={text} is neither true nor false")
                options[_FLAGS[name]] = _BOOLS[text.lower()]
            elif name in _FILES:
                if not Path(text).is_file():
                    raise ConfigError(f"{name}={text}: there is no such file")
                options[_FILES[name]] = text
            else:
                raise ConfigError(f"unknown option {name!r}; known are {', '.join((*_FLAGS, *_FILES))}")
        return cls(
            url=mask_password(url),
            hosts=",".join(_parse_host(host) for host in hosts.split(",")),
            root="/" + unquote(path).strip("/") if path.strip("/") else _ROOT,
            login=unquote(login),
            options=options,
        )

    def make_client(self, session_seconds: float) -> KazooClient:
        """A client with a new session, not connected yet. It repeats no command."""
        never = KazooRetry(max_tries=0)
        return KazooClient(
            self.hosts + self.root,
            timeout=session_seconds,
            auth_data=[("digest", self.login)] if self.login else None,
            default_acl=CREATOR_ALL_ACL if self.login else None,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=1.0),
            command_retry=never,
            logger=_quiet,
            **self.options,
        )


def _parse_host(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{text!r} is not a host and a port")
    return f"{host}:{port}"
