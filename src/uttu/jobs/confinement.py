"""Restrict what tasks may name: the files of the project and the servers of its settings, and no others.

Anyone who can write to the broker can call ``uttu.crawl``, ``uttu.fetch``, ``uttu.export`` and ``uttu.push``. That must
not let them write or run arbitrary files of a worker's machine, or make the worker connect to arbitrary servers. So the
process that received the message checks everything that a call names before it acts on it:

spiders     a ``.py`` file below the folder of the app
outputs     a file below that folder, or below one of ``[jobs] outputs``; a topic of a known server
frontiers   ``sqlite:`` with a folder below that folder; a known server
settings    any that names neither a file nor a server; ``ca_file`` below that folder; the others of a known server
crawls      a crawl's name, or a spider as above

Paths are resolved first, with symbolic links and ``..``. Names that begin with a dot (``.uttu``, ``.git``) are
rejected. Known servers are those of the project's own settings and of ``[jobs] servers``. The command line is not
restricted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import celery
import msgspec

from uttu.bus.topics import split_topic
from uttu.clients.addresses import mask_password
from uttu.errors import ConfigError
from uttu.jobs.settings import JobSettings
from uttu.model.crawl import is_crawl_name
from uttu.settings import convert_setting, load_settings

_SERVERS: Final = ("frontier", "bus", "feed", "proxy")
_PORTS: Final = {"redis": 6379, "amqp": 5672, "amqps": 5671, "kafka": 9092}
_SENTINEL_PORT: Final = 26379
_LONGEST: Final = 4096


class Confinement:
    """The limits of one app. ``folder`` contains its spiders."""

    def __init__(self, folder: Path, settings: JobSettings, brokers: Iterable[str] = ()) -> None:
        self._folder = folder.resolve()
        self._outputs = (self._folder, *((folder / path).expanduser().resolve() for path in settings.outputs))
        self._settings = load_settings(folder=folder)
        own = [getattr(self._settings, name) for name in _SERVERS]
        known = [*own, *brokers, settings.broker, settings.backend, settings.schedules, *settings.servers]
        self._known = {url for url in known if url}
        self._servers = {server for url in self._known for server in _list_servers(url)}

    @classmethod
    def of(cls, app: celery.Celery) -> Confinement:
        """Return the limits of an app, ours or a plain Celery app.

        :raises ConfigError: ``uttu.toml`` cannot be read.
        """
        brokers = [str(url) for url in (app.conf.broker_url, app.conf.result_backend) if url]
        return cls(Path(getattr(app, "folder", ".")), getattr(app, "uttu", None) or JobSettings(), brokers)

    def check_spider(self, file: str) -> None:
        """:raises ConfigError: a task may not name this spider file."""
        if not file.endswith(".py"):
            raise ConfigError(f"The spider {file!r:.200} is not a Python file. Its name must end in .py")
        self._check_path("spider", file, (self._folder,))

    def check_crawl(self, name: str) -> None:
        """Check a crawl's name, or the spider file of a crawl.

        :raises ConfigError: it is neither, or a file that a task may not name.
        """
        if name.endswith(".py"):
            self.check_spider(name)
        elif not is_crawl_name(name):
            raise ConfigError(f"{name!r:.200} is not the name of a crawl. Write letters, digits, '-', '_' and '.'")

    def check_output(self, target: str) -> None:
        """:raises ConfigError: a task may not write to this output."""
        if target == "-":
            raise ConfigError("A job has no standard output. Give a file or a topic as output")
        if "://" in target:
            # Addresses of an unknown kind are refused later, when the sink is created.
            self._check_server("output", target)
            return
        self._check_path("output", target, self._outputs, ". Allow more folders with [jobs] outputs")

    def check_frontier(self, url: str) -> None:
        """:raises ConfigError: a task may not name this frontier."""
        scheme, _, rest = url.partition(":")
        if scheme.lower() not in ("", "sqlite"):
            self._check_server("frontier", url)
        elif other := rest.removeprefix("//"):
            self._check_path("frontier", other, (self._folder,))

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """:raises ConfigError: a task may not set one of these."""
        for name, value in settings.items():
            if not name.isidentifier():
                # On a command line, "proxy=x" or " proxy" would become another name.
                raise ConfigError(f"There is no setting {name!r:.200}")
            if value in ("", None) or value == getattr(self._settings, name, None):
                continue
            if name == "frontier":
                self.check_frontier(str(value))
            elif name in _SERVERS:
                self._check_server(f"setting {name}", str(value))
            elif name == "ca_file":
                self._check_path("setting ca_file", str(value), (self._folder,))
            elif name == "private" and _is_true(value):
                raise ConfigError("Tasks may not set private=true. Set it in uttu.toml, or in the spider")

    def _check_path(self, what: str, text: str, roots: tuple[Path, ...], hint: str = "") -> None:
        shown = f"The {what} {text!r:.200}"
        if "\0" in text or len(text) > _LONGEST or not text.strip():
            raise ConfigError(f"{shown} is not a path")
        # Path removes a leading "./", and the rest may then begin with ~ and be expanded to a home folder.
        if str(Path(text)).startswith("~"):
            raise ConfigError(f"{shown} begins with ~. Give a path relative to the folder {self._folder}")
        try:
            path = (self._folder / text).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigError(f"{shown} is not a path: {error}") from error
        for root in roots:
            if path.is_relative_to(root):
                if any(part.startswith(".") for part in path.relative_to(root).parts):
                    raise ConfigError(f"{shown} contains a name that begins with a dot. Tasks may not use hidden files")
                if path.exists() and not (path.is_file() or path.is_dir()):
                    raise ConfigError(f"{shown} is neither a file nor a folder")
                return
        where = " and ".join(map(str, roots))
        raise ConfigError(f"{shown} is outside of {where}. Tasks may not use other files{hint}")

    def _check_server(self, what: str, url: str) -> None:
        try:
            bare = split_topic(url, "items")[0]
            servers = _list_servers(bare)
            options = urlsplit(bare).query
        except ValueError as error:
            raise ConfigError(f"The {what} {mask_password(url)!r:.200} is not an address: {error}") from error
        if bare in self._known or (servers and servers <= self._servers and not options):
            return
        suffix = " with these options" if servers and servers <= self._servers else ""
        raise ConfigError(
            f"The {what} {mask_password(url)!r:.200} is a server that the project does not use{suffix}. To allow "
            "it for tasks, add it to [jobs] servers"
        )


def _is_true(value: Any) -> bool:
    try:
        return bool(convert_setting(value, bool))
    except msgspec.MsgspecError:
        return False  # loading the settings reports the bad value


def _list_servers(url: str) -> set[tuple[str, str, int]]:
    """Return the servers of an address: family, host and port of each; for a socket, "socket", path and 0.

    :raises ValueError: the address is malformed.
    """
    scheme, found, _ = url.partition("://")
    if not found:
        return set()
    kind = scheme.lower().removeprefix("py")
    kind = kind.removesuffix("s") if kind.partition("+")[0] in ("rediss", "kafkas") else kind
    parts = urlsplit(url)
    if kind.partition("+")[2] in ("unix", "socket"):
        return {("socket", os.path.normpath(f"/{parts.netloc}{parts.path}"), 0)}
    default_port = _SENTINEL_PORT if kind.endswith("+sentinel") else _PORTS.get(kind.partition("+")[0], 0)
    family = kind.partition("+")[0].removesuffix("s")
    hosts = parts.netloc.rpartition("@")[2].split(",")
    return {(family, *_parse_host(host, default_port)) for host in hosts if host}


def _parse_host(text: str, default_port: int) -> tuple[str, int]:
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.lower(), default_port
    return name.lower(), int(port) if port else default_port


def check_crawl(app: Any, file: str, outputs: Sequence[str], settings: dict[str, Any]) -> None:
    """Check that a worker would accept the crawl.

    :raises ConfigError: its file, an output or a setting is not allowed for tasks, or does not exist.
    """
    from uttu.runtime.registry import create_sink

    limits = Confinement.of(app)
    limits.check_spider(file)
    limits.check_settings(settings)
    load_settings({}, settings)
    for output in outputs:
        limits.check_output(output)
        create_sink(output, "crawl")
