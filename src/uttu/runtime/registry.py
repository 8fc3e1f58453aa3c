"""Find backends by URL scheme, file suffix or name, and open them.

    group             key                          factory                     opened by
    uttu.frontiers    scheme of the frontier       factory(url, folder)        open_frontier
    uttu.buses        scheme of the bus            factory(url)                open_bus, connect_bus
    uttu.sinks        suffix, such as .jsonl       factory(path)               create_sink
                      or scheme of the output      factory(url, crawl)
    uttu.fetchers     value of setting fetcher     factory(settings)           load_fetcher
    uttu.coordinators scheme of the coordinator    factory(url, seconds)       open_coordinator

The built-in backends are in ``_BUILT_IN``. Other distributions add theirs as entry points of these groups, with the key
as name and the factory as value. Entry points are read only if no built-in backend has the key, so start-up stays fast
and a plug-in can't replace a built-in backend. Factories of frontiers and buses may be async.

Backends are imported only when they are used. If the package that one needs is not installed, :class:`ConfigError`
names the extra to install. Messages show addresses without passwords.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from uttu.bus.base import Bus
from uttu.bus.topics import split_topic, to_word
from uttu.clients.addresses import mask_password
from uttu.errors import ConfigError, UsageError
from uttu.frontier.catalog import CrawlCatalog
from uttu.sinks.base import Sink

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from uttu.cluster.base import Coordinator

FRONTIERS: Final = "uttu.frontiers"
BUSES: Final = "uttu.buses"
SINKS: Final = "uttu.sinks"
FETCHERS: Final = "uttu.fetchers"
COORDINATORS: Final = "uttu.coordinators"


class Backend(NamedTuple):
    """A built-in backend.

    ``factory`` is ``module:attribute``. ``extra`` is the extra to install, ``package`` the package that it installs.
    """

    factory: str
    extra: str = ""
    package: str = ""


_REDIS_FRONTIER: Final = Backend("uttu.frontier.redis.catalog:open_catalog", "redis", "redis")
_REDIS_BUS: Final = Backend("uttu.bus.redis:RedisBus.connect", "redis", "redis")
_RABBITMQ: Final = Backend("uttu.bus.rabbitmq:RabbitBus.connect", "rabbitmq", "aiormq")
_KAFKA: Final = Backend("uttu.bus.kafka:KafkaBus.connect", "kafka", "confluent_kafka")
_REDIS_COORDINATOR: Final = Backend("uttu.cluster.redis.coordinator:RedisCoordinator.open", "redis", "redis")
_ZOOKEEPER: Final = Backend("uttu.cluster.zookeeper:ZooKeeperCoordinator.open", "zookeeper", "kazoo")
_JSON_LINES: Final = Backend("uttu.sinks.json:JsonLines")
_SQLITE_FILE: Final = Backend("uttu.sinks.sqlite:Sqlite")
_REDIS_SCHEMES: Final = ("redis", "rediss", "redis+unix", "redis+cluster", "rediss+cluster", "redis+sentinel")

_BUILT_IN: Final[dict[str, dict[str, Backend]]] = {
    FRONTIERS: {
        "sqlite": Backend("uttu.frontier.sqlite.catalog:open_catalog"),
        **dict.fromkeys(_REDIS_SCHEMES, _REDIS_FRONTIER),
    },
    BUSES: {
        "memory": Backend("uttu.bus.memory:MemoryBus.connect"),
        **dict.fromkeys(_REDIS_SCHEMES, _REDIS_BUS),
        "amqp": _RABBITMQ,
        "amqps": _RABBITMQ,
        "kafka": _KAFKA,
        "kafkas": _KAFKA,
    },
    SINKS: {
        ".jsonl": _JSON_LINES,
        ".ndjson": _JSON_LINES,
        ".jl": _JSON_LINES,
        ".json": Backend("uttu.sinks.json:Json"),
        ".csv": Backend("uttu.sinks.csv:Csv"),
        ".parquet": Backend("uttu.sinks.parquet:Parquet"),
        ".db": _SQLITE_FILE,
        ".sqlite": _SQLITE_FILE,
        ".sqlite3": _SQLITE_FILE,
    },
    FETCHERS: {"http": Backend("uttu.runtime.factory:create_http_fetcher")},
    COORDINATORS: {
        "local": Backend("uttu.cluster.local:open_folder"),
        **dict.fromkeys(_REDIS_SCHEMES, _REDIS_COORDINATOR),
        "zookeeper": _ZOOKEEPER,
    },
}
FILE_SUFFIXES: Final = tuple(_BUILT_IN[SINKS])

# Addresses to show in error messages.
_FRONTIER_EXAMPLES: Final = (
    "sqlite:FOLDER",
    "redis://HOST:PORT/DB",
    "rediss://…",
    "redis+unix://PATH",
    "redis+cluster://HOST:PORT",
    "rediss+cluster://…",
    "redis+sentinel://HOST:PORT/NAME",
)
_BUS_EXAMPLES: Final = ("memory:", "redis://HOST:PORT/DB", "amqp://HOST,HOST2/VHOST", "kafka://HOST:PORT,HOST2:PORT")
_COORDINATOR_EXAMPLES: Final = ("local:FOLDER", "redis://HOST:PORT/DB", "zookeeper://HOST,HOST2/PATH")
_TOPIC_EXAMPLES: Final = ("redis://", "amqp://", "kafka://")

# How long closing a bus may take. Messages that are not acknowledged by then are redelivered.
_CLOSE_SECONDS: Final = 10.0


def _find_factory(group: str, key: str, needed_by: str) -> Callable[..., Any] | None:
    """The factory of a backend, built-in or from an entry point; None if the key is unknown.

    :param needed_by: The address, for the message.
    :raises ConfigError: the backend can't be imported, or two plug-ins have the same key.
    """
    backend = _BUILT_IN[group].get(key)
    if backend is None:
        return _load_plugin(group, key)
    module, _, attribute = backend.factory.partition(":")
    try:
        factory: Callable[..., Any] = attrgetter(attribute)(import_module(module))
    except ModuleNotFoundError as error:
        if not backend.extra or (error.name or "").partition(".")[0] != backend.package:
            raise
        raise ConfigError(_format_missing(needed_by, backend)) from error
    return factory


def _format_missing(needed_by: str, backend: Backend) -> str:
    return f"{needed_by} needs the \"{backend.extra}\" extra: pip install 'uttu[{backend.extra}]'"


def _find_plugins(group: str) -> list[EntryPoint]:
    # Imported here: it takes a few milliseconds, and most crawls use no plug-in.
    from importlib.metadata import entry_points

    return list(entry_points(group=group))


def _load_plugin(group: str, key: str) -> Callable[..., Any] | None:
    found = [point for point in _find_plugins(group) if point.name.lower() == key]
    if not found:
        return None
    if len(found) > 1:
        owners = " and ".join(_name_distribution(point) for point in found)
        raise ConfigError(f"Two plug-ins provide {key!r} ({group}): {owners}. Uninstall one of them")
    (point,) = found
    try:
        factory: Callable[..., Any] = point.load()
    except Exception as error:
        raise ConfigError(
            f"The plug-in {point.value} of {_name_distribution(point)}, which provides {key!r} ({group}), can't be "
            f"loaded: {type(error).__name__}: {error}"
        ) from error
    return factory


def _name_distribution(point: EntryPoint) -> str:
    return f"the distribution {point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"


def _list_known(group: str, examples: tuple[str, ...]) -> str:
    """The built-in backends and the plug-ins, for a message. Keys that are not suffixes get a colon."""
    plugins = sorted({point.name for point in _find_plugins(group)})
    return ", ".join([*examples, *(name if name.startswith(".") else f"{name}:" for name in plugins)])


async def open_frontier(url: str, folder: Path) -> CrawlCatalog:
    """Open the catalog of crawls at ``url``.

    :param url: By default SQLite files in ``folder``; with ``sqlite:OTHER``, in the folder of this name inside OTHER.
    :raises ConfigError: the scheme is unknown, or its package is not installed.
    :raises StoreError: the store can't be reached.
    """
    scheme = url.partition(":")[0].lower() or "sqlite"
    factory = _find_factory(FRONTIERS, scheme, mask_password(url))
    if factory is None:
        known = _list_known(FRONTIERS, _FRONTIER_EXAMPLES)
        raise ConfigError(f"Unknown frontier {mask_password(url)!r}. Use one of {known}")
    made = factory(url, folder)
    catalog: CrawlCatalog = await made if inspect.isawaitable(made) else made
    return catalog


async def open_bus(url: str) -> Bus:
    """Connect to the message broker at ``url``.

    :raises ConfigError: the scheme is unknown, or its package is not installed.
    :raises BusError: the broker can't be reached, or refuses the connection.
    """
    scheme = url.partition(":")[0].lower()
    factory = _find_factory(BUSES, scheme, mask_password(url))
    if factory is None:
        known = _list_known(BUSES, _BUS_EXAMPLES)
        raise ConfigError(f"Unknown bus {mask_password(url)!r}. Use one of {known}")
    made = factory(url)
    bus: Bus = await made if inspect.isawaitable(made) else made
    return bus


async def open_coordinator(url: str, session_seconds: float) -> Coordinator:
    """Connect to the coordinator at ``url`` and begin a session.

    :raises ConfigError: the scheme is unknown, or its package is not installed.
    :raises ClusterError: the coordinator can't be reached, or refuses the connection.
    """
    scheme = url.partition(":")[0].lower()
    factory = _find_factory(COORDINATORS, scheme, mask_password(url))
    if factory is None:
        known = _list_known(COORDINATORS, _COORDINATOR_EXAMPLES)
        raise ConfigError(f"Unknown coordinator {mask_password(url)!r}. Use one of {known}")
    made = factory(url, session_seconds)
    coordinator: Coordinator = await made if inspect.isawaitable(made) else made
    return coordinator


@contextlib.asynccontextmanager
async def connect_bus(url: str) -> AsyncIterator[Bus]:
    """Like :func:`open_bus`, as a context manager. Closing takes ``_CLOSE_SECONDS`` at most."""
    bus = await open_bus(url)
    try:
        yield bus
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await bus.close()


def load_fetcher(name: str) -> Callable[..., Any]:
    """The factory of the fetcher ``name``, a value of the setting ``fetcher``.

    :raises ConfigError: there is no such fetcher, or it can't be loaded.
    """
    factory = _find_factory(FETCHERS, name.lower(), f"fetcher={name}")
    if factory is None:
        known = ", ".join([*_BUILT_IN[FETCHERS], *sorted({point.name for point in _find_plugins(FETCHERS)})])
        raise ConfigError(f"Unknown fetcher {name!r}. Use one of {known}")
    return factory


# The last two folders of the path where crawls are stored. An output there could overwrite a crawl.
_CRAWLS_FOLDER: Final = (".uttu", "crawls")
# s3://bucket/x.jsonl and C:\\x.jsonl are addresses, not files of this machine. A colon without a slash is allowed in a
# file's name (10:30.jsonl), unless the text before it is a known scheme.
_ADDRESS: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):(?=[/\\])")
_SCHEME: Final = re.compile(
    r"\s*(s3[an]?|gc?s|az|abfss?|wasbs?|hdfs|s?ftps?|scp|ssh|smb|nfs|https?|file|data|memory|stdout|"
    r"postgres(?:ql)?|mysql|mongodb|sqlite|rediss?|amqps?|kafkas?|nats|mqtt)(?:\+[a-z]+)?:",
    re.IGNORECASE,
)


def create_sink(target: str, crawl: str, stdout: BinaryIO | None = None, folder: Path = Path()) -> Sink:
    """Create the sink for an output target: a file, a topic, an address of a plug-in, or ``-`` for standard output.

    :param crawl: The crawl's name, from which the default topic is derived.
    :param stdout: See :class:`uttu.sinks.json.Stdout`.
    :param folder: Where relative paths start.
    :raises UsageError: the target is unknown or invalid, or crawls are stored there.
    :raises ConfigError: the broker needs a package that is not installed, or a plug-in can't be loaded.
    :raises SinkError: the format needs a package that is not installed.
    """
    if target == "-":
        from uttu.sinks.json import Stdout

        return Stdout(stdout)
    if is_bus_url(target):
        return _create_topic_sink(target, crawl)
    if scheme := parse_scheme(target):
        return _create_address_sink(target, scheme, crawl)
    if "\0" in target:
        raise UsageError(f"The output {target!r} has a NUL byte in its name")
    path = folder / expand_path(target)
    factory = _find_factory(SINKS, path.suffix.lower(), target) if path.suffix else None
    if factory is None:
        known = _list_known(SINKS, FILE_SUFFIXES)
        raise UsageError(f"Unknown format of the output {target!r}. Use - or a name that ends in {known}")
    if path.absolute().resolve().parts[-3:-1] == _CRAWLS_FOLDER:
        raise UsageError(f"The output {target} is in Uttu's folder of crawls. Choose another folder")
    sink: Sink = factory(path)
    return sink


def _create_address_sink(target: str, scheme: str, crawl: str) -> Sink:
    """The sink of a plug-in for this scheme. A bus of a plug-in is also an output, as the built-in ones are."""
    factory = _load_plugin(SINKS, scheme.lower())
    if factory is None and "://" in target and _load_plugin(BUSES, scheme.lower()):
        return _create_topic_sink(target, crawl)
    if factory is None:
        known = _list_known(SINKS, FILE_SUFFIXES)
        raise UsageError(
            f"The output {mask_password(target)!r}: Uttu can't write to {scheme}: addresses. Write -, a file whose "
            f"name ends in {known}, or a topic: {', '.join(_TOPIC_EXAMPLES)}"
        )
    sink: Sink = factory(target, crawl)
    return sink


def _create_topic_sink(target: str, crawl: str) -> Sink:
    from uttu.sinks.bus import BusSink

    backend = _BUILT_IN[BUSES].get(target.partition(":")[0].lower())
    if backend is not None and find_spec(backend.package) is None:
        raise ConfigError(_format_missing(f"The output {mask_password(target)}", backend))
    try:
        url, topic = split_topic(target, f"items.{to_word(crawl)}")
    except ValueError as error:
        raise UsageError(f"The output {mask_password(target)}: {error}") from error
    return BusSink(f"{topic} on {mask_password(url)}", topic, crawl, lambda: open_bus(url))


def mask_target(target: str) -> str:
    """An output target without passwords, to show and to store with the crawl."""
    return mask_password(target) if parse_scheme(target) else target


def is_bus_url(url: str) -> bool:
    """Whether a target is the address of a built-in message broker. The bus in memory has no use as an output."""
    scheme, found, _ = url.partition("://")
    return bool(found) and scheme.lower() != "memory" and scheme.lower() in _BUILT_IN[BUSES]


def parse_scheme(target: str) -> str:
    """The scheme of a target that is an address; empty if it is a path. ``./s3:/x`` is a path."""
    found = _ADDRESS.match(target) or _SCHEME.match(target)
    return found[1] if found else ""


def expand_path(target: str) -> Path:
    """The path of a target, with ``~`` expanded.

    :raises UsageError: the user in ``~name`` does not exist.
    """
    try:
        # Check the text, not the Path: Path("./~root") becomes "~root", which expands to a home folder.
        return Path(target).expanduser() if target.startswith("~") else Path(target)
    except RuntimeError as error:
        raise UsageError(f"The output {target!r}: {error}") from error
