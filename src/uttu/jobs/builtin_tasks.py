"""The built-in tasks: ``uttu.crawl``, ``uttu.fetch``, ``uttu.export``, ``uttu.push``.

They belong to every app, ours or a plain Celery app, that has this module in its ``include``; ours always has. Spiders
and ``.uttu`` are in the worker's folder.

``uttu.crawl`` runs in slices, see :mod:`uttu.jobs.crawl_task`. The others run the command of the same name in a child
process and return its ``--json`` output.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from celery import shared_task

from uttu.errors import ConfigError, UttuError
from uttu.jobs.confinement import Confinement
from uttu.jobs.crawl_task import task as slices
from uttu.jobs.crawl_task.protocol import SliceRequest
from uttu.jobs.crawl_task.task import SliceState
from uttu.jobs.task import Task
from uttu.settings import FRONTIER_VARIABLE, child_environment

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
    Confinement.of(self.app).check_settings(settings or {})
    flags = [word for key, value in (settings or {}).items() for word in ("-s", f"{key}={_text(value)}")]
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder, "body")
        words = ["fetch", "--json", "--confined", "-o", str(body), *flags, "--", url]
        # With an HTTP error status the command fails, but it still prints the response.
        said = _uttu(self, words, answers=True)
        content = body.read_bytes()
    response: dict[str, Any] = json.loads(said)
    if b"\0" in content[:1024]:
        response |= {"text": None, "base64": base64.b64encode(content).decode()}
    return response


@shared_task(name="uttu.export", **_TASK_OPTIONS)
def export(self: Task, crawl: str | dict[str, Any], to: str, *, frontier: str = "") -> dict[str, Any]:
    """Write all items of a crawl to a file or a topic, as ``uttu export`` does; return the target and the number of
    items.

    :param crawl: the name of a crawl, its spider file, or the summary that ``uttu.crawl`` returned.
    :param to: a file, a topic, or a format such as ``parquet``: then the file has the name of the crawl.
    :raises UttuError: the crawl does not exist, or the output cannot be written.
    """
    name = resolve_crawl_name(crawl)
    target = to if "." in to or "://" in to else f"{name}.{to}"
    limits = Confinement.of(self.app)
    limits.check_crawl(name)
    limits.check_output(target)
    limits.check_frontier(frontier)
    said = json.loads(_uttu(self, ["export", "--json", f"--output={target}", "--", name], frontier))
    ((file, items),) = said["items"].items()
    return {"crawl": said["crawl"], "file": file, "items": items}


@shared_task(name="uttu.push", **_TASK_OPTIONS)
def push(self: Task, crawl: str | dict[str, Any], urls: str | Sequence[str], *, frontier: str = "") -> dict[str, Any]:
    """Add start URLs to a crawl, as ``uttu push`` does; return how many were new, known and bad.

    :raises UttuError: the crawl would never process them.
    """
    name = resolve_crawl_name(crawl)
    limits = Confinement.of(self.app)
    limits.check_crawl(name)
    limits.check_frontier(frontier)
    lines = [urls] if isinstance(urls, str) else list(urls)
    given = "".join(f"{each}\n" for each in lines)
    found: dict[str, Any] = json.loads(
        _uttu(self, ["push", "--json", "--confined", "-f", "-", "--", name], frontier, given=given, answers=True)
    )
    return found


def resolve_crawl_name(crawl: str | dict[str, Any]) -> str:
    """Return the name of a crawl from its name or its summary.

    :raises ConfigError: it is neither.
    """
    name = crawl.get("crawl") if isinstance(crawl, dict) else crawl
    if not isinstance(name, str) or not name:
        raise ConfigError(f"give a crawl's name, or the summary that uttu.crawl returns: {crawl!r:.80} is neither")
    return name


def _text(value: Any) -> str:
    """Return a setting as it is written on the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def _uttu(task: Task, words: list[str], frontier: str = "", *, given: str = "", answers: bool = False) -> str:
    """Run a command in a child process and return its standard output.

    :param answers: accept the output even if the exit code reports a failure.
    :raises UttuError: the command failed; the message is the command's.
    """
    # An address may contain a password, which must not appear in the process list.
    more = {FRONTIER_VARIABLE: frontier} if frontier else {}
    # -P: modules in the current folder must not shadow Python's or ours.
    done = subprocess.run(
        [sys.executable, "-P", "-m", "uttu", *words],
        cwd=slices.app_folder(task.app),
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env=child_environment(os.environ) | more,
    )
    if done.returncode == 0 or (answers and done.stdout):
        return done.stdout
    raise UttuError(done.stderr.strip().removeprefix("uttu: ") or f"uttu {words[0]} ended with {done.returncode}")


slices.stop_revoked_crawls(CRAWL)
