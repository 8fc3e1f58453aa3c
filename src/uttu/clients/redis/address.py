"""Parse the address of a Redis server, and create the client for it.

    redis://[LOGIN@]HOST[:PORT][/DB]                       rediss:// is the same over TLS
    redis+unix://[LOGIN@]/PATH[?db=DB]
    redis+cluster://[LOGIN@]HOST[:PORT][,HOST[:PORT]…]      rediss+cluster:// over TLS
    redis+sentinel://[LOGIN@]HOST[:PORT][,…]/SERVICE[/DB]   the hosts are the sentinels, the login is the server's

LOGIN is ``:PASSWORD`` or ``USER:PASSWORD``. It ends at the last ``@``, so a password may contain any character, ``/``,
``?`` and ``@`` included. A HOST may be ``[::1]``. Options follow a ``?`` and have the names of redis-py (``_OPTIONS``).
A backend may accept further options; it passes their names as ``more`` to :func:`make_clients`.
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

from uttu.clients.addresses import mask_password
from uttu.errors import ConfigError

RedisClient = aioredis.Redis | aiocluster.RedisCluster

_CONNECTIONS: Final = 8
_CONNECT_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 20.0
_PORT, _SENTINEL_PORT = 6379, 26379
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(%\w+)?\]|[^\s\[\]:,/?#]+)(:(?P<port>\d{1,5}))?")


# A call occupies one connection of the driver's pool until its answer arrives, and the pool opens another one if none
# is free. The semaphore in these classes limits a client to _CONNECTIONS calls at a time. The driver's
# BlockingConnectionPool is not used: it awaits when a connection is returned, and a cancel at that point loses the
# connection permanently. A semaphore is released without an await.


class _LimitedClient(aioredis.Redis):
    """A client with at most ``_CONNECTIONS`` connections."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limit = asyncio.Semaphore(_CONNECTIONS)

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        async with self._limit:
            return await super().execute_command(*words, **options)  # type: ignore[no-untyped-call]


class _LimitedClusterClient(aiocluster.RedisCluster):
    """A cluster client with at most ``_CONNECTIONS`` calls at a time, and so connections per node."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limit = asyncio.Semaphore(_CONNECTIONS)

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        async with self._limit:
            return await super().execute_command(*words, **options)


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("yes", "true", "1", "no", "false", "0"):
        raise ValueError(text)
    return text.lower() in ("yes", "true", "1")


def _check_file(text: str) -> str:
    if not Path(text).is_file():
        raise ConfigError(f"the file {text} does not exist")
    return text


_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "db": int,
    "username": str,
    "password": str,
    "sentinel_username": str,
    "sentinel_password": str,
    "socket_timeout": float,
    "socket_connect_timeout": float,
    "client_name": str,
    "ssl_ca_certs": _check_file,
    "ssl_certfile": _check_file,
    "ssl_keyfile": _check_file,
    "ssl_cert_reqs": str,
    "ssl_check_hostname": _parse_bool,
}


def make_clients(url: str, more: Collection[str] = ()) -> tuple[RedisClient, list[aioredis.Redis]]:
    """Create the client for a URL, without connecting.

    Returns the client and a list of further clients (of the sentinels) that must be closed together with it.

    :param more: names of options that belong to the backend and are skipped here; see :func:`parse_options`.
    :raises ConfigError: the URL has none of the forms above, or an option is unknown or has an invalid value.
    """
    try:
        return _make_clients(url, more)
    except ConfigError as error:
        raise ConfigError(f"{mask_password(url)} is not the address of a Redis server: {error}") from error


def parse_options(url: str) -> list[tuple[str, str]]:
    """Return all options after the ``?`` as pairs of name and value."""
    place = url.partition("://")[2].rpartition("@")[2]
    return parse_qsl(place.partition("?")[2], keep_blank_values=True)


def _make_clients(url: str, more: Collection[str]) -> tuple[RedisClient, list[aioredis.Redis]]:
    scheme, _, rest = url.partition("://")
    login, _, place = rest.rpartition("@")
    hosts, _, path = place.partition("?")[0].partition("/")
    user, _, password = login.partition(":")
    login_options = {"username": unquote(user), "password": unquote(password)}
    options = (
        _default_settings()
        | {name: text for name, text in login_options.items() if text}
        | _convert_options(parse_options(url), more)
    )
    sentinel = {name: options.pop(f"sentinel_{name}", None) for name in login_options}
    scheme = scheme.lower()
    if scheme.startswith("rediss"):
        options["ssl"] = True
    elif any(name.startswith("ssl_") for name in options):
        raise ConfigError("options that begin with ssl_ need rediss://")
    match scheme:
        case "redis" | "rediss":
            (host, port), *others = _parse_hosts(hosts, _PORT)
            if others:
                raise ConfigError("it names several hosts; for a cluster write redis+cluster://")
            return _LimitedClient(host=host, port=port, **_add_database(options, path)), []
        case "redis+unix":
            if hosts or not path:
                raise ConfigError("write the path of the socket after three slashes: redis+unix:///run/redis.sock?db=0")
            return _LimitedClient(unix_socket_path="/" + unquote(path), **_add_database(options, "")), []
        case "redis+cluster" | "rediss+cluster":
            if _add_database(options, path).pop("db"):
                raise ConfigError("a cluster has one database only, 0")
            options.pop("db", None)
            nodes = [aiocluster.ClusterNode(host, port, **options) for host, port in _parse_hosts(hosts, _PORT)]
            return _LimitedClusterClient(startup_nodes=nodes, **options), []
        case "redis+sentinel":
            service, _, database = path.strip("/").partition("/")
            if not service:
                raise ConfigError("it names no service: redis+sentinel://HOST:26379,HOST2:26379/SERVICE")
            timeouts = {name: options[name] for name in ("socket_timeout", "socket_connect_timeout")}
            sentinel_options = _default_settings() | timeouts | {name: text for name, text in sentinel.items() if text}
            sentinels = _parse_hosts(hosts, _SENTINEL_PORT)
            manager = aiosentinel.Sentinel(sentinels, sentinel_kwargs=sentinel_options)  # type: ignore[no-untyped-call]
            chosen = _add_database(options, database)
            primary: aioredis.Redis = manager.master_for(unquote(service), redis_class=_LimitedClient, **chosen)
            return primary, list(manager.sentinels)
    raise ConfigError("it must begin with redis://, rediss://, redis+unix://, redis+cluster:// or redis+sentinel://")


def _default_settings() -> dict[str, Any]:
    # No retries in the driver: Retrier in errors.py repeats calls and reports them. RESP 2 is sufficient, and with it
    # a server that is too old for RESP 3 still answers INFO, so find_problems can reject it by its version.
    return {
        "socket_connect_timeout": _CONNECT_SECONDS,
        "socket_timeout": _ANSWER_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }


def _convert_options(options: list[tuple[str, str]], more: Collection[str]) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for name, text in options:
        if name in more:
            continue
        if name not in _OPTIONS:
            raise ConfigError(f"unknown option {name!r}; the options are {', '.join(sorted({*_OPTIONS, *more}))}")
        try:
            converted[name] = _OPTIONS[name](text)
        except ValueError as error:
            raise ConfigError(f"the option {name!r} has an invalid value") from error
    return converted


def _add_database(options: dict[str, Any], path: str) -> dict[str, Any]:
    number = path.strip("/")
    if number and not number.isdecimal():
        raise ConfigError(f"{number!r} is not the number of a database")
    return options | {"db": int(number) if number else options.get("db", 0)}


def _parse_hosts(text: str, port: int) -> list[tuple[str, int]]:
    # The message does not quote the text: it may be a password in the wrong place.
    hosts = []
    for each in text.split(","):
        match = _HOST.fullmatch(each)
        if match is None or not 0 < int(match["port"] or port) < 65_536:
            raise ConfigError("write HOST or HOST:PORT after :// (and after a login with @)")
        hosts.append((match["host"].strip("[]"), int(match["port"] or port)))
    return hosts
