"""The forms of a Redis server's address, and the client for each.

    redis://[LOGIN@]HOST[:PORT][/DB]                       rediss:// is the same over TLS
    redis+unix://[LOGIN@]/PATH[?db=DB]
    redis+cluster://[LOGIN@]HOST[:PORT][,HOST[:PORT]…]      rediss+cluster:// over TLS
    redis+sentinel://[LOGIN@]HOST[:PORT][,…]/SERVICE[/DB]   the hosts are the sentinels, the login is the server's

LOGIN is ``:PASSWORD`` or ``USER:PASSWORD``; it ends at the last ``@``, so a password may have any character, those that
URLs use included. A HOST may be ``[::1]``. Options follow a ``?``; they have the names that redis-py gives them. What
the server is used for may have options more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import redis.asyncio as aioredis
import redis.asyncio.cluster as aiocluster
import redis.asyncio.sentinel as aiosentinel
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from weft.drivers.urls import masked
from weft.errors import ConfigError

Client = aioredis.Redis | aiocluster.RedisCluster

_CONNECTIONS: Final = 8
_CONNECT_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 20.0
_PORT, _SENTINEL_PORT = 6379, 26379
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(%\w+)?\]|[^\s\[\]:,/?#]+)(:(?P<port>\d{1,5}))?")


# A call takes a connection for as long as it lasts, and the driver's pools open a new one if none is free. So calls
# wait their turn. A semaphore is left without an await; the driver's own pool that waits must wait to be left, too,
# and loses a connection for good if it is cancelled there.


class _Client(aioredis.Redis):
    """Has few connections."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._turns = asyncio.Semaphore(_CONNECTIONS)

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        async with self._turns:
            return await super().execute_command(*words, **options)  # type: ignore[no-untyped-call]


class _ClusterClient(aiocluster.RedisCluster):
    """Has few connections to each node."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._turns = asyncio.Semaphore(_CONNECTIONS)

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        async with self._turns:
            return await super().execute_command(*words, **options)


def _yes(text: str) -> bool:
    if text.lower() not in ("yes", "true", "1", "no", "false", "0"):
        raise ValueError(text)
    return text.lower() in ("yes", "true", "1")


def _file(text: str) -> str:
    if not Path(text).is_file():
        raise ConfigError(f"there is no file {text}")
    return text


_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "db": int, "username": str, "password": str, "sentinel_username": str, "sentinel_password": str,
    "socket_timeout": float, "socket_connect_timeout": float, "client_name": str,
    "ssl_ca_certs": _file, "ssl_certfile": _file, "ssl_keyfile": _file, "ssl_cert_reqs": str,
    "ssl_check_hostname": _yes,
}  # fmt: skip


def clients(url: str, more: Collection[str] = ()) -> tuple[Client, list[aioredis.Redis]]:
    """The client for a server, not yet connected; and those beside it that must be closed, too.

    ``more`` are the names of options that are not for it; see :func:`asked`.

    :raises ConfigError: the URL is none of these forms.
    """
    try:
        return _clients(url, more)
    except ConfigError as error:
        raise ConfigError(f"{masked(url)} is not the address of a Redis server: {error}") from error


def asked(url: str) -> list[tuple[str, str]]:
    """All options that follow the ``?``."""
    place = url.partition("://")[2].rpartition("@")[2]
    return parse_qsl(place.partition("?")[2], keep_blank_values=True)


def _clients(url: str, more: Collection[str]) -> tuple[Client, list[aioredis.Redis]]:
    scheme, _, rest = url.partition("://")
    login, _, place = rest.rpartition("@")
    hosts, _, path = place.partition("?")[0].partition("/")
    user, _, password = login.partition(":")
    given = {"username": unquote(user), "password": unquote(password)}
    options = _settings() | {name: text for name, text in given.items() if text} | _options(asked(url), more)
    sentinel = {name: options.pop(f"sentinel_{name}", None) for name in given}
    scheme = scheme.lower()
    if scheme.startswith("rediss"):
        options["ssl"] = True
    elif any(name.startswith("ssl_") for name in options):
        raise ConfigError("options that begin with ssl_ are for rediss://")
    match scheme:
        case "redis" | "rediss":
            (host, port), *others = _hosts(hosts, _PORT)
            if others:
                raise ConfigError("it names several hosts; for a cluster write redis+cluster://")
            return _Client(host=host, port=port, **_with_database(options, path)), []
        case "redis+unix":
            if hosts or not path:
                raise ConfigError("write the path of the socket after three slashes: redis+unix:///run/redis.sock?db=0")
            return _Client(unix_socket_path="/" + unquote(path), **_with_database(options, "")), []
        case "redis+cluster" | "rediss+cluster":
            if _with_database(options, path).pop("db"):
                raise ConfigError("a cluster has one database only, 0")
            options.pop("db", None)
            nodes = [aiocluster.ClusterNode(host, port, **options) for host, port in _hosts(hosts, _PORT)]
            return _ClusterClient(startup_nodes=nodes, **options), []
        case "redis+sentinel":
            service, _, database = path.strip("/").partition("/")
            if not service:
                raise ConfigError("it names no service: redis+sentinel://HOST:26379,HOST2:26379/SERVICE")
            asking = _settings() | {name: text for name, text in sentinel.items() if text}
            sentinels = _hosts(hosts, _SENTINEL_PORT)
            manager = aiosentinel.Sentinel(sentinels, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
            chosen = _with_database(options, database)
            primary: aioredis.Redis = manager.master_for(unquote(service), redis_class=_Client, **chosen)
            return primary, list(manager.sentinels)
    raise ConfigError("it begins with none of redis://, rediss://, redis+unix://, redis+cluster://, redis+sentinel://")


def _settings() -> dict[str, Any]:
    # Weft tries again by itself, and says so. The older protocol is enough, and a server that knows no other can
    # still be told to be too old.
    return {
        "socket_connect_timeout": _CONNECT_SECONDS,
        "socket_timeout": _ANSWER_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }


def _options(given: list[tuple[str, str]], more: Collection[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in given:
        if name in more:
            continue
        if name not in _OPTIONS:
            raise ConfigError(f"there is no option {name!r}; there are {', '.join(sorted({*_OPTIONS, *more}))}")
        try:
            found[name] = _OPTIONS[name](text)
        except ValueError as error:
            raise ConfigError(f"the value of option {name!r} is not of its kind") from error
    return found


def _with_database(options: dict[str, Any], path: str) -> dict[str, Any]:
    number = path.strip("/")
    if number and not number.isdecimal():
        raise ConfigError(f"{number!r} is not the number of a database")
    return options | {"db": int(number) if number else options.get("db", 0)}


def _hosts(text: str, port: int) -> list[tuple[str, int]]:
    # A mistake may well be a password in the wrong place: it is not repeated.
    found = []
    for each in text.split(","):
        match = _HOST.fullmatch(each)
        if match is None or not 0 < int(match["port"] or port) < 65_536:
            raise ConfigError("after :// (and a login with @) come HOST or HOST:PORT")
        found.append((match["host"].strip("[]"), int(match["port"] or port)))
    return found
