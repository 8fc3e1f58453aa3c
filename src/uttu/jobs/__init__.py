"""Jobs: Celery runs crawls and any other tasks of a project, now or by schedule.

``from uttu.jobs import app, crawl`` gives the app of the current folder and one of its built-in tasks. ``celery -A
uttu.jobs`` finds the app too.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from uttu.errors import ConfigError

try:
    from celery import _state

    # Without redis, Celery's own code for it fails with unclear errors.
    if find_spec("redis") is None:
        raise ModuleNotFoundError("No module named 'redis'", name="redis")
except ModuleNotFoundError as error:
    raise ConfigError("Jobs need the \"jobs\" extra: pip install 'uttu[jobs]'") from error

from uttu.jobs.app import App
from uttu.jobs.settings import JobSettings
from uttu.jobs.task import Task

if TYPE_CHECKING:
    from uttu.jobs.builtin_tasks import crawl, export, fetch, push

    app: App
else:
    # Importing the module ``app`` has bound its name here. Remove it, so that ``__getattr__`` below is called.
    globals().pop("app")

__all__ = ["App", "JobSettings", "Task", "app", "crawl", "export", "fetch", "push"]


def __getattr__(name: str) -> Any:
    """Create the app on first access: a program with its own app must not read our ``uttu.toml``.

    The built-in tasks work with every app. In a program without one, accessing them creates this app.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "app" or not (_state.default_app or _state._tls.current_app):
        default_app = globals()["app"] = App.load()
        # The default of all threads; Celery's current app belongs to one thread.
        default_app.set_default()
        if name == "app":
            return default_app
    return getattr(importlib.import_module("uttu.jobs.builtin_tasks"), name)
