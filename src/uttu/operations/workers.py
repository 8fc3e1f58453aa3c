"""Read the workers of a crawl, and drain one of them.

A worker that is drained finishes its pages and leaves; the others go on. The wish is written to the crawl's ledger, and
the worker reads it within a second, on any machine.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

from uttu.errors import UttuError
from uttu.model.crawl import LogLine, WorkerReport
from uttu.operations import Report
from uttu.operations.control import check_not_moved
from uttu.operations.crawls import CrawlStatus, record_action, select_crawl

# Workers that are gone leave their last report. Return this many of them.
_MOST_GONE: Final = 50


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """A worker of a crawl as of its latest report."""

    name: str
    alive: bool
    age: float
    """Seconds since the report."""
    host: str = ""
    pid: int = 0
    started: float = 0.0
    rate: float = 0.0
    """Pages per second since it started."""
    pages: int = 0
    items: int = 0
    retries: int = 0
    bytes: int = 0
    in_flight: int = 0
    held: int = 0
    concurrency: int = 0
    flying: list[str] = []
    """URLs of some pages in flight, the oldest first."""
    log: list[LogLine] = []
    draining: bool = False
    """Whether it was asked to leave."""


async def read_workers(crawl: str, frontier: str, report: Report, folder: Path = Path()) -> list[WorkerState]:
    """The workers of a crawl: those alive by name, then those that are gone, the latest first.

    :raises StoreError: the store can't be reached, or has no such crawl.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        return list_workers(await found.status())


def list_workers(status: CrawlStatus) -> list[WorkerState]:
    """The workers in the status of a crawl; see :func:`read_workers`."""
    living = sorted(status.living)
    gone = sorted((name for name in status.workers if name not in status.living), key=lambda name: status.workers[name])
    return [_describe(status, name) for name in (*living, *gone[:_MOST_GONE])]


def _describe(status: CrawlStatus, name: str) -> WorkerState:
    age, report = status.workers[name]
    return WorkerState(
        name=name,
        alive=name in status.living,
        age=age,
        host=report.host,
        pid=report.pid,
        started=report.started,
        rate=_average(age, report),
        pages=report.pages,
        items=report.items,
        retries=report.retries,
        bytes=report.bytes,
        in_flight=report.in_flight,
        held=report.held,
        concurrency=report.concurrency,
        flying=report.flying,
        log=report.log,
        draining=name in status.facts.draining,
    )


def _average(age: float, report: WorkerReport) -> float:
    worked = time.time() - age - report.started
    return report.pages / worked if worked > 0 else 0.0


class DrainResult(msgspec.Struct, frozen=True):
    """The worker that leaves. ``is_new``: whether it was not asked before. ``left``: how many others go on."""

    crawl: str
    worker: WorkerState
    is_new: bool
    left: int


async def drain_worker(
    crawl: str, frontier: str, worker: str, report: Report, *, by: str = "", folder: Path = Path()
) -> DrainResult:
    """Let one worker finish its pages and leave. Others go on, and no other is started in its place.

    :param worker: Its name, or the beginning of it if only one worker has that.
    :param by: Who does it, for the history of the crawl.
    :raises UttuError: there is no such worker, it is gone, it is the last one, or the crawl was moved.
    """
    async with select_crawl(crawl, frontier, report, folder) as found:
        status = await found.status()
        check_not_moved(status)
        name = _find_worker(status, worker)
        others = [each for each in status.living if each != name and each not in status.facts.draining]
        is_new = name not in status.facts.draining
        if is_new:
            if not others:
                raise UttuError(
                    f"{name} is the last worker of crawl {status.name!r}, which would not go on without it. Stop the "
                    f"crawl with: {status.words('stop', status.name)}, or start another worker first: uttu worker FILE"
                )
            await found.store.ledger.note(draining={name: time.time()})
            await record_action(found.store, by, "drain", worker=name)
        return DrainResult(status.name, _describe(status, name), is_new, len(others))


def _find_worker(status: CrawlStatus, worker: str) -> str:
    if worker in status.living:
        return worker
    found = [name for name in status.living if worker and name.startswith(worker)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UttuError(f"Several workers of crawl {status.name!r} begin with {worker!r}: {', '.join(sorted(found))}")
    if worker in status.workers:
        raise UttuError(f"Worker {worker} of crawl {status.name!r} is gone already")
    there = f"there are: {', '.join(sorted(status.living))}" if status.living else "no worker is at it"
    raise UttuError(f"Crawl {status.name!r} has no worker {worker!r}; {there}")
