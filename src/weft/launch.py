"""Starting and resuming crawls: what the command line, and later jobs and the dashboard, have in common.

A crawl's state is one file in ``.weft/crawls``, named after the spider; arguments make it another
crawl. Run again, a crawl that was cut short goes on; one that ended as it should starts anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec
import xxhash

from weft import assembly
from weft.assembly import Store
from weft.clock import SystemClock
from weft.config import Settings
from weft.engine.crew import Processes
from weft.engine.drain import Drain
from weft.engine.states import State
from weft.engine.supervisor import Crew, Supervisor
from weft.errors import StoreError, WeftError
from weft.fetch.base import Fetcher
from weft.model import Counts, Pace, Request
from weft.model.url import host_of
from weft.sinks.base import Sink
from weft.spider import Spider

FOLDER = Path(".weft")
_DATABASE = ("", "-wal", "-shm")
# So many start requests are looked at for their hosts before the crawl begins.
_LOOKED_AT, _LOOKED_SECONDS = 1000, 0.5
_LOCK_TRIES, _LOCK_SECONDS = 5, 0.02


def crawl_id(spider: Spider, given: dict[str, str]) -> str:
    """The spider's name; with arguments, a short hash of them behind it."""
    if not given:
        return spider.name
    return f"{spider.name}-{xxhash.xxh3_64_hexdigest(msgspec.json.encode(sorted(given.items())))[:12]}"


def crawl_path(crawl: str, folder: Path = FOLDER) -> Path:
    return folder / "crawls" / f"{crawl}.db"


def crawls(folder: Path = FOLDER) -> list[str]:
    """All crawls of a folder, the one last written to first."""
    found = sorted((folder / "crawls").glob("*.db"), key=lambda path: -path.stat().st_mtime)
    return [path.stem for path in found]


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Be the one supervisor of the crawl at ``path``, until the end of the block or the process.

    :raises WeftError: another is.
    """
    lock = path.with_name(path.name + ".supervisor")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"{lock}: {error.strerror}. Weft keeps the state of crawls there") from error
    try:
        if not _locked(file):
            raise WeftError(
                f"crawl {path.stem!r} is running already, in another process. Add to it with: weft worker FILE"
            )
        yield
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    """Whether the lock could be had; tried for a moment, as ``weft status`` holds it for an instant when it looks."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_SECONDS)
        else:
            return True
    return False


class Opened(msgspec.Struct, frozen=True):
    """A crawl's store, and whether it holds a crawl that goes on."""

    store: Store
    resumed: bool
    counts: Counts
    former: str = ""
    """How the crawl before this one ended, where it was replaced."""


async def open_crawl(path: Path, settings: Settings, *, fresh: bool, resume: bool) -> Opened:
    """Open the crawl at ``path``; make it new if it is to start again, or ended as it should.

    A crawl that is replaced is only put aside: :func:`remove_former` or :func:`restore_former` it.

    :raises StoreError: it can't be opened.
    """
    former = ""
    if fresh and path.exists():
        # A file that can't be opened may be the very reason to start again.
        with contextlib.suppress(StoreError):
            store = assembly.open_store(path, settings.rules)
            await store.ledger.note(state=State.STOPPED, reason="started again")
            await store.frontier.close()
        _rename(path, _former(path))
    elif path.exists():
        store = assembly.open_store(path, settings.rules)
        facts, counts = await store.ledger.facts(), await store.frontier.counts()
        state = State(facts.get("state", State.RUNNING))
        if not state.ended or (resume and state is State.LIMITED):
            await _keep_pace(store, facts.get("pace", ""), settings.rules.pace)
            return Opened(store, facts.get("state") is not None, counts)
        former = state.value if state is State.FINISHED else facts.get("reason", state.value)
        await store.frontier.close()
        _rename(path, _former(path))
    store = assembly.open_store(path, settings.rules)
    await _keep_pace(store, "", settings.rules.pace)
    return Opened(store, False, Counts(), former)


async def _keep_pace(store: Store, noted: str, pace: Pace) -> None:
    """Lanes remember their pace. If the crawl's own was changed since, change it in those that had it."""
    former = msgspec.json.decode(noted, type=Pace) if noted else pace
    if former != pace:
        await store.inspector.repace(former, pace)
    await store.ledger.note(pace=msgspec.json.encode(pace).decode())


def remove_former(path: Path) -> None:
    """The new crawl at ``path`` has begun: drop the one it replaces."""
    for suffix in _DATABASE:
        _former(path).with_name(_former(path).name + suffix).unlink(missing_ok=True)


def restore_former(path: Path) -> None:
    """The new crawl at ``path`` could not begin: put back the one it was to replace, if there was one."""
    if _former(path).exists():
        for suffix in _DATABASE:
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        _rename(_former(path), path)


def _former(path: Path) -> Path:
    return path.with_suffix(".former")


def _rename(path: Path, to: Path) -> None:
    # The log before the database: a database without its log is a little older, a log without its database is lost.
    for suffix in reversed(_DATABASE):
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.replace(to.with_name(to.name + suffix))


async def start_hosts(store: Store) -> frozenset[str]:
    """The hosts that the crawl may visit, private or not, because it started there."""
    return frozenset((await store.ledger.facts()).get("start_hosts", "").split())


async def start_of(spider: Spider, store: Store) -> tuple[frozenset[str], AsyncIterator[Request]]:
    """:func:`start_hosts`, found among the first of the start requests; and all of these."""
    stream = spider.start_requests()
    if (await store.ledger.facts()).get("seeded") == "yes":
        return await start_hosts(store), stream
    first: list[Request] = []
    began = time.monotonic()
    async for request in stream:
        first.append(request)
        if len(first) == _LOOKED_AT or time.monotonic() - began > _LOOKED_SECONDS:
            break
    hosts = frozenset(host_of(request.url) for request in first)
    await store.ledger.note(start_hosts=" ".join(sorted(hosts)))
    return hosts, _chained(first, stream)


async def _chained(first: Sequence[Request], rest: AsyncIterator[Request]) -> AsyncIterator[Request]:
    for request in first:
        yield request
    async for request in rest:
        yield request


async def supervisor_for(
    spider: Spider,
    settings: Settings,
    store: Store,
    fetcher: Fetcher,
    sinks: Sequence[Sink],
    workers: Sequence[str] = (),
    count: int = 1,
) -> Supervisor:
    """The whole crawl: one worker in this process, or ``count`` processes that run the command ``workers``."""
    hosts, start = await start_of(spider, store)
    crew: Crew = Processes(workers, count) if workers else assembly.member_for(spider, settings, store, fetcher, hosts)
    return Supervisor(
        start=start,
        crew=crew,
        frontier=store.frontier,
        ledger=store.ledger,
        drain=Drain(store.outbox, sinks),
        limits=assembly.limits_for(settings),
        clock=SystemClock(),
    )
