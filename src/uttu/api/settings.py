"""The table ``[dashboard]`` of ``uttu.toml``, and the names of the stores and brokers that the dashboard watches.

defaults < ``uttu.toml`` < environment (``UTTU_DASHBOARD_PORT=9000``) < flags of ``uttu dashboard``

Each store and broker has a short name that stands in addresses: ``local`` for the folder's own crawls, else kind, host,
port and database: ``redis-127.0.0.1-6379-0``. It never contains a login.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from uttu.errors import ConfigError, UsageError
from uttu.settings import (
    DATA_FOLDER,
    ENVIRONMENT_PREFIX,
    SETTINGS_FILE,
    convert_table_entry,
    load_bus,
    load_frontier,
    read_settings_file,
)

TABLE: Final = "dashboard"
VARIABLE: Final = ENVIRONMENT_PREFIX + "DASHBOARD_"
LOCAL: Final = "local"
PORT: Final = 8642
_ACCESS_FILE: Final = DATA_FOLDER / "dashboard" / "access.json"


class DashboardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of the dashboard."""

    # Where it listens
    host: str = "127.0.0.1"
    port: int = PORT
    tls_cert: str = ""
    tls_key: str = ""

    # Behind a proxy: the path prefix, other names of this server, and the proxies whose X-Forwarded-… headers count
    root_path: str = ""
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()

    # What it watches; without them the frontier and the bus of the project's settings
    stores: tuple[str, ...] = ()
    buses: tuple[str, ...] = ()

    # Users and tokens, and how long a login lasts
    users: str = str(_ACCESS_FILE)
    session_hours: float = 12.0

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ConfigError(f"dashboard.port: {self.port} is not a port. Give a number from 1 to 65535")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ConfigError(f"dashboard.root_path: {self.root_path!r} must start with / and not end with it")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError("dashboard: TLS needs both tls_cert and tls_key")
        if not self.session_hours > 0:
            raise ConfigError("dashboard.session_hours must be more than 0")

    @property
    def is_local(self) -> bool:
        """Whether it listens on loopback only, and has no other name."""
        return is_loopback(self.host) and all(map(is_loopback, self.hosts))

    @property
    def url(self) -> str:
        """The address to open in a browser of this machine."""
        scheme = "https" if self.tls_cert else "http"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}{self.root_path}/"


class DashboardConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a dashboard runs with. ``folder`` is the project's folder."""

    settings: DashboardSettings = DashboardSettings()
    folder: Path = Path()
    stores: dict[str, str] = {}
    """The URL of each store, by its name. An empty URL is the frontier of the project's settings."""
    buses: dict[str, str] = {}

    @property
    def access_file(self) -> Path:
        return self.folder / Path(self.settings.users).expanduser()

    @property
    def url_file(self) -> Path:
        """Where a running dashboard writes its address, for ``uttu open``."""
        return self.access_file.with_name("url")


def load_config(
    folder: Path = Path(),
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> DashboardConfig:
    """Load the settings from all sources, and name the stores and brokers.

    :param flags: Values from the command line; None and empty ones don't count.
    :raises ConfigError: names the source, the setting and the expected value.
    :raises UsageError: a flag is wrong.
    """
    file = folder / SETTINGS_FILE
    table = read_settings_file(file).get(TABLE, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: dashboard must be a table. Write [dashboard], and its settings below")
    merged = {
        name: convert_table_entry(f"{file}: dashboard.{name}", name, value, _TYPES) for name, value in table.items()
    }
    for name in _TYPES:
        variable = VARIABLE + name.upper()
        if variable in environment:
            merged[name] = convert_table_entry(variable, name, environment[variable], _TYPES)
    settings = DashboardSettings(**merged)
    given = {name: value for name, value in (flags or {}).items() if value not in (None, "")}
    if given:
        try:
            settings = DashboardSettings(**merged | given)
        except ConfigError as error:
            raise UsageError(str(error)) from error
    own_bus = load_bus(folder=folder, environment=environment)
    return DashboardConfig(
        settings=settings,
        folder=folder,
        stores=_name_stores(settings.stores, load_frontier(folder=folder, environment=environment)),
        buses=name_servers(settings.buses or ((own_bus,) if own_bus else ())),
    )


def _name_stores(urls: Sequence[str], own: str) -> dict[str, str]:
    """Name the stores. The one of the project's settings keeps an empty URL, so that commands don't repeat it."""
    if not urls:
        return dict.fromkeys(name_servers([own]), "")
    return {slug: "" if url == own else url for slug, url in name_servers(urls).items()}


def name_servers(urls: Sequence[str]) -> dict[str, str]:
    """Give each URL a short name without a login. The second of the same name gets a number."""
    found: dict[str, str] = {}
    for url in urls:
        if url in found.values():
            continue
        name = slug = _derive_slug(url)
        number = 1
        while slug in found:
            number += 1
            slug = f"{name}-{number}"
        found[slug] = url
    return found


_SLUG_PARTS: Final = re.compile(r"[^A-Za-z0-9._]+")


def _derive_slug(url: str) -> str:
    scheme, colon, rest = url.partition(":")
    if not url or (scheme.lower() == "sqlite" and rest.removeprefix("//") in ("", ".")):
        return LOCAL
    if scheme.lower() == "sqlite":
        return _join_slug("sqlite", Path(rest.removeprefix("//")).name)
    # The login may contain any character; it ends at the last "@" before the options.
    bare = f"{scheme}{colon}//{rest.removeprefix('//').rpartition('@')[2]}"
    parts = urlsplit(bare)
    return _join_slug(scheme, parts.netloc, parts.path)


def _join_slug(*parts: str) -> str:
    slug = "-".join(filter(None, (_SLUG_PARTS.sub("-", part).strip("-.") for part in parts)))
    return slug[:100].lower() or "server"


def is_loopback(host: str) -> bool:
    """Whether a host name or address, without a port, can only be this machine."""
    name = host.lower().rstrip(".").strip("[]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(DashboardSettings)}
