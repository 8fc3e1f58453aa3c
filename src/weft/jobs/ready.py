"""The ready-made tasks: ``weft.crawl``, ``weft.fetch``, ``weft.export``, ``weft.push``.

They belong to every app, ours or a plain Celery one, that has this module among its ``include``; ours always has. What
they need, spiders and ``.weft``, is in the folder where the worker runs.
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

from weft.config import FRONTIER_VARIABLE
from weft.errors import ConfigError, WeftError
from weft.jobs.slices import revoked
from weft.jobs.slices import task as slices
from weft.jobs.slices.order import Order
from weft.jobs.slices.task import Stage
from weft.jobs.task import Task

CRAWL: Final = "weft.crawl"
# They may come twice, and say so: a copy of a slice is told apart, the others do the same again.
_SAFE: Final = {"base": Task, "bind": True, "acks_late": True, "reject_on_worker_lost": True}


@shared_task(name=CRAWL, **_SAFE)
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
    """Run the spider of a file to its end, as ``weft crawl`` does; returns the summary that ``--json`` prints.

    ``arguments`` and ``settings`` are what ``-a`` and ``-s`` are there, ``output`` is ``-o``. ``workers``: so many of
    the app's workers are to take part, as far as they are free. ``stage`` is what one slice tells the next.

    :raises WeftError: the crawl can't begin, or can't go on.
    """
    at = slices.began(msgspec.convert(stage or {}, Stage))
    order = slices.order_of(
        self.request.id, slices.slice_seconds(self.app), at, spider, arguments=arguments, settings=settings,
        output=output, spider_name=spider_name, crawl=crawl, fresh=fresh, resume=resume,
    )  # fmt: skip
    return slices.crawl(self, order, workers, at)


@shared_task(name=slices.JOIN, ignore_result=True, **_SAFE)
def join(self: Task, order: dict[str, Any]) -> None:
    """Take part in a crawl for the time of a slice; sent by ``weft.crawl`` itself."""
    slices.join(self, msgspec.convert(order, Order))


@shared_task(name="weft.fetch", **_SAFE)
def fetch(self: Task, url: str, *, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Fetch one page with the crawler's own fetcher, as ``weft fetch`` does; returns what that prints with ``--json``.

    ``url`` may be a curl command, as browsers copy it. A body that is no text is in ``base64``, and ``text`` is None.

    :raises WeftError: no response could be had.
    """
    flags = [word for key, value in (settings or {}).items() for word in ("-s", f"{key}={_text(value)}")]
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder, "body")
        # A status that is no success makes the command fail, but it is an answer all the same.
        said = _weft(self, ["fetch", url, "--json", "-o", str(body), *flags], answers=True)
        content = body.read_bytes()
    response: dict[str, Any] = json.loads(said)
    if b"\0" in content[:1024]:
        response |= {"text": None, "base64": base64.b64encode(content).decode()}
    return response


@shared_task(name="weft.export", **_SAFE)
def export(self: Task, crawl: str | dict[str, Any], to: str, *, frontier: str = "") -> dict[str, Any]:
    """Write all items of a crawl to a file or a topic, as ``weft export`` does; returns where to and how many.

    ``crawl`` is a crawl's name, its spider file, or what ``weft.crawl`` returned. ``to`` is a file's name, or a format
    such as ``parquet``: then the file is named after the crawl.

    :raises WeftError: there is no such crawl, or the output can't be written.
    """
    name = name_of(crawl)
    target = to if "." in to or "://" in to else f"{name}.{to}"
    said = json.loads(_weft(self, ["export", name, "-o", target, "--json"], frontier))
    ((file, items),) = said["items"].items()
    return {"crawl": said["crawl"], "file": file, "items": items}


@shared_task(name="weft.push", **_SAFE)
def push(self: Task, crawl: str | dict[str, Any], urls: str | Sequence[str], *, frontier: str = "") -> dict[str, Any]:
    """Add start URLs to a crawl, as ``weft push`` does; returns how many were new, known and bad.

    :raises WeftError: the crawl would never come to them.
    """
    lines = [urls] if isinstance(urls, str) else list(urls)
    given = "".join(f"{each}\n" for each in lines)
    found: dict[str, Any] = json.loads(
        _weft(self, ["push", name_of(crawl), "-f", "-", "--json"], frontier, given=given, answers=True)
    )
    return found


def name_of(crawl: str | dict[str, Any]) -> str:
    """The crawl that is meant, by its name or its summary.

    :raises ConfigError: it is neither.
    """
    name = crawl.get("crawl") if isinstance(crawl, dict) else crawl
    if not isinstance(name, str) or not name:
        raise ConfigError(f"give a crawl's name, or the summary that weft.crawl returns: {crawl!r:.80} is neither")
    return name


def _text(value: Any) -> str:
    """A setting as it is written on the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def _weft(task: Task, words: list[str], frontier: str = "", *, given: str = "", answers: bool = False) -> str:
    """What a command prints. It runs in a process of its own, as a crawl does.

    ``answers``: what it prints is an answer, also if its exit code says that not all was well.

    :raises WeftError: it failed; the message is the command's.
    """
    # An address may hold a password, which is not for the list of processes.
    more = {FRONTIER_VARIABLE: frontier} if frontier else {}
    # -P: the folder it is run in must not hide Python's own modules, or ours.
    done = subprocess.run(
        [sys.executable, "-P", "-m", "weft", *words], cwd=slices.folder_of(task.app), input=given,
        capture_output=True, text=True, check=False, env=os.environ | more,
    )  # fmt: skip
    if done.returncode == 0 or (answers and done.stdout):
        return done.stdout
    raise WeftError(done.stderr.strip().removeprefix("weft: ") or f"weft {words[0]} ended with {done.returncode}")


revoked.stop_crawls(CRAWL, slices.order_of_request)
