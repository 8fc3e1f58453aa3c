"""The table ``[jobs]`` of ``uttu.toml``.

defaults < ``uttu.toml`` < environment (``UTTU_JOBS_BROKER=redis://…``)

These are the few settings that a user of jobs has to choose. All of Celery's settings, about two hundred, can be set in
``[jobs.celery]``, with their new or old names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from zoneinfo import ZoneInfo

import msgspec

from uttu.clients.addresses import mask_password
from uttu.errors import ConfigError
from uttu.settings import ENVIRONMENT_PREFIX, SETTINGS_FILE, convert_table_entry, read_settings_file

TABLE = "jobs"
VARIABLE = ENVIRONMENT_PREFIX + "JOBS_"
_REDIS = ("redis", "rediss", "redis+socket")
_RABBITMQ = ("amqp", "amqps", "pyamqp")


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of jobs."""

    # Servers for messages and results; without a broker, the embedded server of the folder is used
    broker: str = ""
    backend: str = ""
    name: str = "uttu"

    # Task modules, and the queues that tasks go to
    include: tuple[str, ...] = ()
    queue: str = "uttu"
    queue_type: Literal["classic", "quorum"] = "classic"
    routes: dict[str, Any] = {}
    confirm: bool = False

    # Times, in seconds
    timezone: str = "UTC"
    result_seconds: float = 86400.0
    visibility_seconds: float = 300.0
    slice_seconds: float = 60.0

    # Schedules: the URL of their store, and their tables
    schedules: str = ""
    schedule: dict[str, dict[str, Any]] = {}

    # Additional paths and servers that tasks may name; see uttu.jobs.confinement
    outputs: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()

    # Passed on unchanged
    flower: dict[str, Any] = {}
    celery: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.broker and not kind_of(self.broker):
            raise ConfigError(
                f"jobs.broker: {mask_password(self.broker)} is not a broker for jobs. Use redis://…, rediss://…, "
                "redis+socket:///path or amqp://…"
            )
        if min(self.result_seconds, self.visibility_seconds, self.slice_seconds) <= 0:
            raise ConfigError("jobs: result_seconds, visibility_seconds and slice_seconds must be more than 0")
        if self.slice_seconds > self.visibility_seconds / 2:
            raise ConfigError(
                f"jobs: slice_seconds={self.slice_seconds:g} must be at most half of "
                f"visibility_seconds={self.visibility_seconds:g}: a slice must end before its message is delivered "
                "again"
            )
        if not (self.name and self.queue):
            raise ConfigError("jobs: name and queue must not be empty")
        try:
            ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError) as error:
            raise ConfigError(
                f"jobs.timezone: There is no time zone {self.timezone!r}. Write it as Europe/Berlin"
            ) from error


def kind_of(url: str) -> Literal["redis", "rabbitmq", ""]:
    """Return the kind of broker of a URL; "" for any other."""
    scheme = url.partition("://")[0] if "://" in url else ""
    return "redis" if scheme in _REDIS else "rabbitmq" if scheme in _RABBITMQ else ""


def management_of(url: str) -> str:
    """Return the address of RabbitMQ's management API, from the option ``management`` of its URL; the bus has the same
    option.
    """
    return dict(parse_qsl(urlsplit(url).query)).get("management", "") if kind_of(url) == "rabbitmq" else ""


def without_management(url: str) -> str:
    """Return the URL without the option ``management``, which Celery does not know."""
    if not management_of(url):
        return url
    parts = urlsplit(url)
    rest = [pair for pair in parse_qsl(parts.query) if pair[0] != "management"]
    return urlunsplit(parts._replace(query=urlencode(rest)))


def load_job_settings(folder: Path = Path(), environment: Mapping[str, str] = os.environ) -> JobSettings:
    """Load the settings from all sources.

    :raises ConfigError: names the source, the setting and the expected value.
    """
    file = folder / SETTINGS_FILE
    table = read_settings_file(file).get(TABLE, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: jobs must be a table. Write [jobs], and its settings below")
    merged = {name: convert_table_entry(f"{file}: jobs.{name}", name, value, _TYPES) for name, value in table.items()}
    for name in _TYPES:
        variable = VARIABLE + name.upper()
        if variable in environment:
            merged[name] = convert_table_entry(variable, name, environment[variable], _TYPES)
    return JobSettings(**merged)


_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(JobSettings)}
