"""The store of an app, and the schedules that its code and its ``weft.toml`` have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from celery.beat import BeatLazyFunc

from weft.drivers.urls import masked
from weft.errors import ConfigError
from weft.jobs.schedules.base import Keeper
from weft.jobs.schedules.entry import Entry, Source
from weft.jobs.schedules.reading import parse

_REDIS: Final = ("redis", "rediss", "redis+socket", "redis+unix", "unix")
_FILE: Final = "sqlite:.weft/jobs/schedules.db"


def store_for(url: str, name: str, folder: Path = Path()) -> Keeper:
    """Where the schedules of the app ``name`` are kept; files are from ``folder`` on.

    :raises ConfigError: there is nothing of that kind.
    """
    scheme, _, rest = url.partition(":")
    match scheme.lower():
        case "sqlite" if rest.removeprefix("//"):
            from weft.jobs.schedules.sqlite import SqliteStore

            return SqliteStore(folder / Path(rest.removeprefix("//")).expanduser())
        case word if word in _REDIS:
            from weft.jobs.schedules.redis import RedisStore

            return RedisStore(url, name)
    raise ConfigError(f"schedules can't be kept at {masked(url)!r}; write redis://HOST:PORT/DB or sqlite:FILE")


def store_of(app: Any) -> Keeper:
    """The store of an app: the one that is set, else the broker's own server, or a file where that keeps no data.

    :raises ConfigError: likewise.
    """
    settings = getattr(app, "weft", None)
    url = settings.schedules if settings is not None else ""
    if not url:
        broker = str(app.conf.broker_url).partition(";")[0]
        url = broker if broker.partition("://")[0] in _REDIS else _FILE
        if hold := getattr(app, "_hold", None):
            # The private server may not run yet.
            hold()
    return store_for(url, settings.name if settings is not None else app.main or "weft", getattr(app, "folder", Path()))


def fixed_entries(app: Any) -> tuple[list[Entry], list[str]]:
    """The schedules in code and in ``weft.toml``; and what is wrong with those that can't be used."""
    timezone = str(app.conf.timezone or "UTC")
    settings = getattr(app, "weft", None)
    # Modules with periodic tasks may not be there yet.
    app.loader.import_default_modules()
    app.finalize(auto=True)
    found = {entry.name: entry for entry in getattr(app, "entries", ())}
    wrong: list[str] = []
    sources: list[tuple[Mapping[str, Any], Source]] = [
        (app.conf.beat_schedule or {}, "code"),
        (settings.schedule if settings is not None else {}, "weft.toml"),
    ]
    for tables, source in sources:
        for name, table in tables.items():
            try:
                found[name] = table if isinstance(table, Entry) else parse(name, _plain(table), source, timezone)
            except ConfigError as error:
                wrong.append(str(error))
    return list(found.values()), wrong


def lazy(app: Any, name: str) -> tuple[Any, Any] | None:
    """Arguments in code that are to be made anew for each fire, see Celery's ``BeatLazyFunc``."""
    table = (app.conf.beat_schedule or {}).get(name)
    if not isinstance(table, Mapping):
        return None
    args, kwargs = table.get("args") or (), table.get("kwargs") or {}
    if not any(isinstance(each, BeatLazyFunc) for each in (*args, *kwargs.values())):
        return None
    return (
        tuple(each() if isinstance(each, BeatLazyFunc) else each for each in args),
        {key: each() if isinstance(each, BeatLazyFunc) else each for key, each in kwargs.items()},
    )


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only this process can make."""
    args, kwargs = table.get("args") or (), table.get("kwargs") or {}
    return {
        **table,
        "args": tuple(None if isinstance(each, BeatLazyFunc) else each for each in args),
        "kwargs": {key: None if isinstance(each, BeatLazyFunc) else each for key, each in kwargs.items()},
    }
