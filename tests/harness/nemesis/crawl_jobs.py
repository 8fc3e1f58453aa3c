"""Crawls as jobs, while what runs them is killed; then the books are checked.

``python -m tests.harness.nemesis.crawl_jobs --rounds 20``. A round is one crawl in slices, on a broker of its own, with
kills of one kind in the middle of it:

slice    the process of a slice; the task sends the slice again
pool     the process of the worker's pool that runs the task; the slice's process finishes what is in flight
main     the worker's main process; what it had begun goes on, and another worker comes
worker   all processes of the worker at once; another worker comes
broker   the broker, and it comes back after two seconds

What must be so at the end: the crawl has finished, each page has exactly one row, and a page was fetched again only if
a process that was killed had it in hand.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec
import psutil
from kombu import pools

from tests.harness.servers import RabbitServer, RedisServer
from uttu.jobs import App
from uttu.jobs import settings as job_settings
from uttu.testing.site import Site, SiteProcess, fetches
from uttu.testing.waiting import wait_until

Kind = Literal["slice", "pool", "main", "worker", "broker"]
Broker = Literal["redis", "rabbitmq"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_PATIENCE_SECONDS: Final = 120.0
_AWAY_SECONDS: Final = 2.0
_SLICE: Final = "uttu.jobs.crawl_task.runner"
_SPIDER: Final = """
from uttu import Page, Spider

spider = Spider("pages", start={start!r}, private=True, robots=False, delay=0, per_host=0, concurrency=4)

@spider.page
def page(page: Page):
    yield {{"url": page.url}}
    yield page.follow_all("a")
"""
# A worker that is killed has its messages handed out again after the visibility timeout, on Redis.
_SETTINGS: Final = """
[jobs]
broker = {broker!r}
backend = {backend!r}
slice_seconds = 1.5
visibility_seconds = 5
"""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One round."""

    kind: Kind
    broker: Broker = "redis"
    kills: int = 2
    pages: int = 400


class Folder:
    """A folder with a spider, the app of it, and its workers."""

    def __init__(self, folder: Path, broker: str, backend: str, start: str) -> None:
        (folder / "spider.py").write_text(_SPIDER.format(start=start))
        (folder / "uttu.toml").write_text(_SETTINGS.format(broker=broker, backend=backend))
        self._folder = folder
        self.app = App(job_settings.load_job_settings(folder, {}), folder, set_as_current=False)
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("UTTU_")}
        self._workers: list[subprocess.Popen[bytes]] = []
        self._strays: list[psutil.Process] = []

    @property
    def main(self) -> psutil.Process:
        """The main process of the newest worker."""
        return psutil.Process(self._workers[-1].pid)

    def work(self) -> None:
        """Start a worker, with two processes."""
        name = f"w{len(self._workers)}@here"
        with (self._folder / "log").open("ab") as log:
            command = [sys.executable, "-P", "-m", "uttu", "jobs", "worker", "-c", "2", "-l", "INFO", "-n", name]
            worker = subprocess.Popen(
                command, cwd=self._folder, stdout=log, stderr=log, start_new_session=True, env=self._environment
            )
        self._workers.append(worker)
        wait_until(
            lambda: f"{name} ready." in self.log() or worker.poll() is not None,
            "the worker is ready",
            _PATIENCE_SECONDS,
        )

    def slices(self) -> list[psutil.Process]:
        """The processes of slices below the newest worker."""
        return [each for each in self.main.children(recursive=True) if _SLICE in _command(each)]

    def kill(self, kind: Kind) -> set[str]:
        """Kill what the kind says; returns the pages that it had in hand. A slice must be at work."""
        wait_until(self._is_at_work, "a slice is at work", _PATIENCE_SECONDS)
        main = self.main
        below = main.children(recursive=True)
        slices = [each for each in below if _SLICE in _command(each)]
        match kind:
            case "slice":
                _kill(slices)
            case "pool":
                _kill([parent for each in slices if (parent := each.parent()) is not None])
            case "main":
                self._strays += below
                _kill([main])
            case "worker":
                _kill([main, *below])
            case "broker":
                raise ValueError("a broker is none of a folder's processes")
        held = self._leased() if kind in ("slice", "worker") else set()
        if kind in ("main", "worker"):
            self.work()
        return held

    def rows(self) -> Counter[str]:
        """How often each page is in the output."""
        lines = (self._folder / "out.jsonl").read_text().splitlines()
        return Counter(urlsplit(json.loads(line)["url"]).path for line in lines)

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def close(self) -> None:
        """End all that is left."""
        left = [each for each in self._strays if each.is_running()]
        for worker in self._workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(worker.pid)
                left += [process, *process.children(recursive=True)]
        _kill(left)
        for worker in self._workers:
            worker.wait()
        pools.reset()  # a later round may have a broker at the same port
        self.app.close()

    def _is_at_work(self) -> bool:
        with contextlib.suppress(sqlite3.Error):
            return bool(self.slices()) and bool(self._leased())
        return False

    def _leased(self) -> set[str]:
        with contextlib.closing(sqlite3.connect(self._folder / ".uttu" / "crawls" / "pages.db")) as db:
            return {urlsplit(url).path for (url,) in db.execute("SELECT record ->> 'u' FROM leases")}


def run(plan: Plan) -> list[str]:
    """One round; returns what is wrong."""
    site = SiteProcess(Site(pages=plan.pages, links=8, latency=0.03))
    with contextlib.ExitStack() as stack:
        stack.enter_context(site)
        backend = stack.enter_context(RedisServer(appendonly=True))
        server = stack.enter_context(RabbitServer()) if plan.broker == "rabbitmq" else backend
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="uttu-jobs-")))
        folder = Folder(path, server.url, backend.url, f"{site.url}p/0")
        stack.callback(folder.close)
        folder.work()
        result = folder.app.signature("uttu.crawl", ("spider.py",), {"output": "out.jsonl"}).apply_async()
        held: Counter[str] = Counter()
        for number in range(1, plan.kills + 1):
            gets_on = functools.partial(_has_seen, site, number * plan.pages // (plan.kills + 2))
            wait_until(gets_on, "the crawl gets on", _PATIENCE_SECONDS, folder.log)
            if plan.kind == "broker":
                server.kill()
                time.sleep(_AWAY_SECONDS)
                server.restart()
            else:
                held.update(folder.kill(plan.kind))
        wait_until(lambda: _is_ready(result), "the job is done", _PATIENCE_SECONDS, folder.log)
        return findings(plan, result.result, folder.rows(), _fetched(site), held)


def findings(plan: Plan, summary: object, rows: Counter[str], fetched: Counter[str], held: Counter[str]) -> list[str]:
    """All that is wrong, in words."""
    expected = {f"/p/{number}" for number in range(plan.pages)}
    found = []
    if not isinstance(summary, dict) or (summary["state"], summary["done"]) != ("finished", plan.pages):
        found.append(f"the job came to {summary!r:.200}")
    if rows != Counter(expected):
        found.append(f"{len(expected - rows.keys())} pages have no row, {(rows - Counter(expected)).total()} too many")
    again = {path: count - 1 for path, count in fetched.items() if count - 1 > held[path]}
    if again:
        found.append(f"{len(again)} pages were fetched again that nobody had in hand: {sorted(again)[:5]}")
    return found


def _has_seen(site: SiteProcess, requests: int) -> bool:
    return len(site.records()) > requests


def _is_ready(result: Any) -> bool:
    # While the broker is away, nobody can say.
    with contextlib.suppress(Exception):
        return bool(result.ready())
    return False


def _fetched(site: SiteProcess) -> Counter[str]:
    return Counter({path: count for (_, path), count in fetches(site.records()).items()})


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _kill(processes: list[psutil.Process]) -> None:
    """kill -9, and wait until they are gone."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(processes, timeout=10)


def _plans(rounds: int) -> Iterator[Plan]:
    brokers: tuple[Broker, ...] = get_args(Broker)
    for number in range(rounds):
        for kind in KINDS:
            yield Plan(kind=kind, broker=brokers[number % 2], kills=1 + number % 3)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.nemesis.crawl_jobs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="of each kind (%(default)s)")
    wrong = 0
    for plan in _plans(parser.parse_args().rounds):
        began = time.monotonic()
        found = run(plan)
        wrong += bool(found)
        said = "; ".join(found) or "clean"
        print(f"{plan.broker:9} {plan.kind:7} {plan.kills} kills {time.monotonic() - began:5.0f} s  {said}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
