"""The crawls of this folder: which one is meant, and how it stands.

The ledger says how a crawl *was* when a process last wrote to it. Whether it still runs says the
lock its supervisor holds: the system takes it away from a process however that ends.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import os
import shlex
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from weft import assembly, launch
from weft.assembly import Store
from weft.engine.states import State
from weft.engine.stats import Report
from weft.errors import StoreError
from weft.frontier.base import Rules
from weft.model import Counts
from weft.spider import Spider

CUT_SHORT = "cut short"
UNREADABLE = "unreadable"
# A worker that has not reported for so long is not counted as working.
FRESH_SECONDS = 5.0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a crawl stands. ``state`` is one of :class:`State`, ``cut short`` or ``unreadable``."""

    name: str
    path: Path
    state: str
    reason: str = ""
    supervised: bool = False
    counts: Counts = Counts()
    facts: dict[str, str] = {}
    workers: dict[str, tuple[float, Report]] = {}
    """The last report of each worker, and its age in seconds."""
    active: float = 0.0
    """When it was last worked on."""

    @property
    def how(self) -> str:
        """The reason behind the state, in brackets, if there is something to say."""
        return f" ({self.reason})" if self.reason else ""

    def command(self) -> str:
        """What was typed to start it, as far as it is known; its outputs are not."""
        return shlex.join(crawl_command(self.name, self.facts))


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    """The store of a crawl, to look at.

    :raises StoreError: it can't be opened.
    """
    store = assembly.open_store(path, Rules(), create=False)
    try:
        yield store
    finally:
        await store.frontier.close()


def is_supervised(path: Path) -> bool:
    """Whether a process runs the crawl at ``path``."""
    try:
        file = os.open(path.with_name(path.name + ".supervisor"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


async def standing_of(store: Store, path: Path) -> Standing:
    """How the crawl of an open store stands."""
    supervised = is_supervised(path)
    facts, counts, reports = await store.ledger.facts(), await store.frontier.counts(), await store.ledger.reports()
    state = facts.get("state", State.RUNNING)
    if state in (State.RUNNING, State.STOPPING) and not supervised:
        state = CUT_SHORT
    now = time.time()
    workers = {name: (age, msgspec.json.decode(report, type=Report)) for name, (age, report) in reports.items()}
    return Standing(
        name=path.stem,
        path=path,
        state=state,
        reason=facts.get("reason", "") if state != CUT_SHORT else "",
        supervised=supervised,
        counts=counts,
        facts=facts,
        workers=workers,
        active=max((now - age for age, _ in workers.values()), default=os.stat(path).st_mtime),
    )


async def survey(folder: Path = launch.FOLDER) -> list[Standing]:
    """All crawls, the one last worked on first. One that can't be read is listed as such."""
    found = []
    for name in launch.crawls(folder):
        path = launch.crawl_path(name, folder)
        try:
            async with opened(path) as store:
                found.append(await standing_of(store, path))
        except StoreError as error:
            found.append(Standing(name=name, path=path, state=UNREADABLE, reason=str(error)))
    return sorted(found, key=lambda each: -each.active)


async def choose(name: str = "") -> tuple[Path, str]:
    """The crawl of this name, or of this spider file, or the latest; and a remark where it was a choice.

    :raises StoreError: there is none.
    """
    path = launch.crawl_path(name)
    return (path, "") if name and path.is_file() else _pick(await survey(), name)


def _pick(found: list[Standing], name: str) -> tuple[Path, str]:
    found = [each for each in found if each.state != UNREADABLE]
    if not found:
        raise StoreError("there is no crawl here: none was started in this folder. Start one with: weft crawl FILE")
    if not name:
        remark = f"of {found[0].name}, the latest of {len(found)} crawls here" if len(found) > 1 else ""
        return found[0].path, remark
    file = str(Path(name).resolve())
    for each in found:
        if each.facts.get("file") == file:
            return each.path, f"of {each.name}"
    names = [each.name for each in found]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:5]
    raise StoreError(f"there is no crawl {name!r} here; there is: {', '.join(near)} (weft status lists all)")


def crawl_command(name: str, facts: dict[str, str]) -> list[str]:
    """The words of the command that goes on with a crawl."""
    file = Path(facts.get("file", "FILE"))
    with contextlib.suppress(ValueError):
        file = file.relative_to(Path.cwd())
    arguments = msgspec.json.decode(facts.get("arguments", "{}"), type=dict[str, str])
    words = ["weft", "crawl", str(file)]
    for key, value in arguments.items():
        words += ["-a", f"{key}={value}"]
    for key, value in msgspec.json.decode(facts.get("flags", "{}")).items():
        words += ["-s", f"{key}={value}"]
    for output in msgspec.json.decode(facts.get("outputs", "[]"), type=list[str]):
        words += ["-o", output]
    spider = facts.get("spider", name)
    if name != launch.crawl_id(Spider(spider), arguments):
        words += ["--crawl", name]
    return words
