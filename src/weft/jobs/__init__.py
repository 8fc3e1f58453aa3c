"""Jobs: Celery schedules the crawls, and whatever else a user wants done beside them.

``from weft.jobs import app, crawl`` is the app of the folder one is in, and a ready-made task of it; ``celery -A
weft.jobs`` finds the app too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from weft.errors import ConfigError

try:
    from celery import _state
except ModuleNotFoundError as error:
    raise ConfigError("jobs need some packages more: pip install weft[jobs]") from error

from weft.jobs.app import App
from weft.jobs.settings import JobSettings
from weft.jobs.task import Task

if TYPE_CHECKING:
    from weft.jobs.ready import crawl, export, fetch, push

    app: App
else:
    # Python has given this name to the module of that name. Without it, the function below is asked.
    globals().pop("app")

__all__ = ["App", "JobSettings", "Task", "app", "crawl", "export", "fetch", "push"]


def __getattr__(name: str) -> Any:
    """The app, made when it is first asked for: a program that has its own reads no ``weft.toml`` of ours.

    The ready-made tasks belong to every app. Asked for in a program that has none, they bring this one.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "app" or not (_state.default_app or _state._tls.current_app):
        made = globals()["app"] = App.load()
        # For all threads: Celery's current app is that of one.
        made.set_default()
        if name == "app":
            return made
    return getattr(importlib.import_module("weft.jobs.ready"), name)
