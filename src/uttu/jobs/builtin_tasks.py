"""The built-in tasks: ``uttu.crawl``, ``uttu.fetch``, ``uttu.export``, ``uttu.push``.

They belong to every app, ours or a plain Celery app, that has this module in its ``include``; ours always has. Spiders
and ``.uttu`` are in the app's folder, which is passed on explicitly: tasks of other threads share the working
directory.

``uttu.crawl`` runs in slices, each in a child process, because spiders may harm their process; see
:mod:`uttu.jobs.crawl_task`. The others call :mod:`uttu.operations` in the process of the worker. None of them runs a
spider's handlers, and settings bound the time of a fetch and the size of its body. Stores and sinks use threads, which
a gevent or eventlet pool replaces by greenlets that would never run; there these tasks are refused.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import msgspec
from celery import shared_task

from uttu.errors import ConfigError, UsageError
from uttu.jobs.confinement import Confinement
from uttu.jobs.crawl_task import task as slices
from uttu.jobs.crawl_task.protocol import SliceRequest
from uttu.jobs.crawl_task.task import SliceState
from uttu.jobs.task import Task, run_coroutine

T = TypeVar("T")

CRAWL: Final = "uttu.crawl"
# Built-in tasks are acknowledged late: they may be delivered twice. A copy of a slice is recognised; the others are
# safe to repeat.
_TASK_OPTIONS: Final = {"base": Task, "bind": True, "acks_late": True, "reject_on_worker_lost": True}


@shared_task(name=CRAWL, **_TASK_OPTIONS)
def crawl(
    self: Task,
    spider: str,
    *,
    arguments: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    output: str | list[str] = "",
    workers: int = 1,
    fresh: bool = False,
    resume: bool = False,
    spider_name: str = "",
    crawl: str = "",
    stage: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Run the spider of a file to its end, as ``uttu crawl`` does; return the summary that ``--json`` prints.

    :param arguments: the spider arguments, as with ``-a``.
    :param settings: the settings, as with ``-s``.
    :param output: one or more outputs, as with ``-o``.
    :param workers: the number of the app's workers that take part, as far as they are free.
    :param stage: passed from one slice to the next; not for callers.
    :raises UttuError: the crawl cannot begin or continue.
    """
    at = slices.with_start_time(msgspec.convert(stage or {}, SliceState))
    order = slices.build_request(
        self.request.id,
        slices.slice_seconds(self.app),
        at,
        spider,
        arguments=arguments,
        settings=settings,
        output=output,
        spider_name=spider_name,
        crawl=crawl,
        fresh=fresh,
        resume=resume,
    )
    return slices.run_slice(self, order, workers, at)


@shared_task(name=slices.JOIN, ignore_result=True, **_TASK_OPTIONS)
def join(self: Task, order: dict[str, Any]) -> None:
    """Take part in a crawl for the time of one slice; sent by ``uttu.crawl`` itself."""
    slices.run_join(self, msgspec.convert(order, SliceRequest))


@shared_task(name="uttu.fetch", **_TASK_OPTIONS)
def fetch(self: Task, url: str, *, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Fetch one page with the crawler's fetcher, as ``uttu fetch`` does; return what its ``--json`` prints.

    A binary body is in ``base64``, and ``text`` is None.

    :param url: a URL, or a curl command as browsers copy it.
    :raises UttuError: the fetch got no response.
    """
    from uttu.operations.fetch import FetchedPage, fetch_page, parse_target
    from uttu.settings import load_settings

    Confinement.of(self.app).check_settings(settings or {})
    folder = slices.app_folder(self.app)
    chosen = load_settings({}, {key: _text(value) for key, value in (settings or {}).items()}, folder=folder)
    try:
        request = parse_target([url])
    except ValueError as error:
        raise UsageError(str(error)) from error
    response = _run(fetch_page(request, chosen, confined=True, folder=folder))
    found: dict[str, Any] = _to_json(FetchedPage.of(response))
    if b"\0" in response.body[:1024]:
        found |= {"text": None, "base64": base64.b64encode(response.body).decode()}
    return found


@shared_task(name="uttu.export", **_TASK_OPTIONS)
def export(self: Task, crawl: str | dict[str, Any], to: str, *, frontier: str = "") -> dict[str, Any]:
    """Write all items of a crawl to a file or a topic, as ``uttu export`` does; return the target and the number of
    items.

    :param crawl: the name of a crawl, its spider file, or the summary that ``uttu.crawl`` returned.
    :param to: a file, a topic, or a format such as ``parquet``: then the file has the name of the crawl.
    :raises UttuError: the crawl does not exist, or the output cannot be written.
    """
    from uttu.operations.items import export_items

    name = resolve_crawl_name(crawl)
    target = to if "." in to or "://" in to else f"{name}.{to}"
    limits = Confinement.of(self.app)
    limits.check_crawl(name)
    limits.check_output(target)
    limits.check_frontier(frontier)
    folder = slices.app_folder(self.app)
    with _exporting:
        done = _run(export_items(name, frontier, [target], _ignore, folder=folder))
    ((file, items),) = done.items.items()
    return {"crawl": done.crawl, "file": file, "items": items}


@shared_task(name="uttu.push", **_TASK_OPTIONS)
def push(self: Task, crawl: str | dict[str, Any], urls: str | Sequence[str], *, frontier: str = "") -> dict[str, Any]:
    """Add start URLs to a crawl, as ``uttu push`` does; return how many were new, known and bad.

    :raises UttuError: the crawl would never process them.
    """
    from uttu.operations.seeds import push_seeds

    name = resolve_crawl_name(crawl)
    limits = Confinement.of(self.app)
    limits.check_crawl(name)
    limits.check_frontier(frontier)
    lines = [urls] if isinstance(urls, str) else list(urls)
    entries = "".join(f"{each}\n" for each in lines).encode().split(b"\n")
    folder = slices.app_folder(self.app)
    done = _run(push_seeds(name, frontier, (), "", _ignore, entries=entries, confined=True, folder=folder))
    return {"crawl": done.crawl, "new": done.new, "known": done.known, "bad": done.bad}


def resolve_crawl_name(crawl: str | dict[str, Any]) -> str:
    """Return the name of a crawl from its name or its summary.

    :raises ConfigError: it is neither.
    """
    name = crawl.get("crawl") if isinstance(crawl, dict) else crawl
    if not isinstance(name, str) or not name:
        raise ConfigError(f"Give a crawl's name, or the summary that uttu.crawl returns: {crawl!r:.80} is neither")
    return name


def _text(value: Any) -> str:
    """Return a setting as it is written on the command line."""
    return value if isinstance(value, str) else json.dumps(value)


# One export at a time in a process. Outputs are protected by file locks, which belong to the whole process: two threads
# would not exclude each other, and one that closes the file would drop the locks of the other.
_exporting: Final = threading.Lock()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run an operation to its end, also if a loop runs in this thread because an ``async def`` task called this one.

    :raises ConfigError: the worker's pool has no threads.
    """
    monkey = sys.modules.get("gevent.monkey") or sys.modules.get("eventlet.patcher")
    patched = getattr(monkey, "is_module_patched", None) or getattr(monkey, "is_monkey_patched", None)
    if patched is not None and (patched("threading") or patched("thread")):
        work.close()
        raise ConfigError("This task needs threads: run it on a worker with --pool prefork, threads or solo")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        found: T = run_coroutine(work)
        return found
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _to_json(value: Any) -> Any:
    """Return a value as every result serializer gives it back: lists instead of tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _ignore(message: str) -> None:
    """Drop messages for people: the caller gets numbers, and the log must not contain what a message names."""


slices.stop_revoked_crawls(CRAWL)
