"""One crawl: real processes, a well-behaved host whose pages come one after the other, and hostile ones beside it.

The crawl is watched from outside. The gap is the longest time between two requests that the good host saw, by its own
log, from the moment the hostile pages were asked for until they had ended. The time in which the crawl or the good host
waited for a processor that other programs had is not part of it. Memory is the peak of the largest process. How a page
ended is read from the crawl's store.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.harness.nemesis.hostile.cases import Trial, settings_of
from tests.harness.nemesis.hostile.plan import BEGUN, PLAN, STOP, Plan
from tests.harness.nemesis.hostile.process_tree import ProcessTree
from uttu.model.url import fingerprint
from uttu.testing.site import Record, Site, SiteProcess
from uttu.testing.site.hostile import HostileProcess

_TOO_LARGE: Final = 3 * 2**30  # bytes; it is killed before it takes the machine's memory
_LOOK_SECONDS: Final = 0.05
_STATE_SECONDS: Final = 0.25
_AFTERMATH_SECONDS: Final = 0.7
"""The crawl is watched for so long after the last hostile page ended."""
_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 20.0
_PAGES: Final = 1_000_000
_SPIDER: Final = Path(__file__).with_name("spider.py")
_ROOT: Final = Path(__file__).parents[4]  # of the repository: the spider imports tests.harness
# Exit codes by which a crawl says that it ended as it was asked to: it had finished, or it was stopped.
_FINISHED, _STOPPED = 0, 143


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a crawl. ``endings`` has how each case's page ended, by the case's name."""

    cases: tuple[str, ...]
    workers: int
    gap: float
    megabytes: float
    seconds: float
    code: int | None
    endings: dict[str, str]
    left: int
    findings: tuple[str, ...]
    said: str = ""


def run(trial: Trial) -> Result:
    """Crawl the cases of a trial; the result says what is wrong."""
    cases = trial.cases
    hosts = [case for case in cases if case.kind is not None]
    site = Site(pages=_PAGES, hosts=len(cases) + 1, links=4, page_bytes=2000)
    with (
        SiteProcess(site) as good,
        HostileProcess([case.kind for case in hosts if case.kind]) as hostile,
        tempfile.TemporaryDirectory(prefix="uttu-hostile-") as folder,
    ):
        urls = {
            case.name: hostile.urls[case.name] if case.kind else f"{good.urls[number]}p/{number}?{case.handler}"
            for number, case in enumerate(cases, 1)
        }
        plan = Plan(
            good=f"{good.url}p/0",
            step=site.hosts,
            hostile=tuple((urls[case.name], case.handler) for case in cases),
        )
        wanted = {"ca_file": str(hostile.authority)} if hostile.authority.exists() else {}
        crawl = _Crawl(Path(folder), plan, wanted | settings_of(trial), trial.workers, good.pid)
        try:
            crawl.watch(urls, trial)
        finally:
            leftovers = crawl.kill()
        ended = crawl.read(urls)
        gap = longest_gap(good.records(), good.site.addresses[0], crawl.began, crawl.ended, crawl.waited)
        return Result(
            cases=tuple(case.name for case in cases),
            workers=trial.workers,
            gap=gap,
            megabytes=crawl.family.peak / 2**20,
            seconds=crawl.ended - crawl.began,
            code=crawl.code,
            endings=ended.endings,
            left=ended.left,
            findings=tuple(_findings(trial, crawl, ended, gap)),
            said="\n".join([crawl.said()[-2000:], *leftovers]).strip(),
        )


def _findings(trial: Trial, crawl: _Crawl, ended: _Ended, gap: float) -> list[str]:
    cases = trial.cases
    found = list(crawl.findings)
    if gap > trial.gap_seconds:
        found.append(f"{gap:.1f} s without a page of the good host")
    if crawl.family.peak > max(case.megabytes for case in cases) * 2**20:
        found.append(f"a process of {crawl.family.peak / 2**20:.0f} MB")
    if trial.may_fail:
        return found
    if not found and crawl.code not in ((_FINISHED, _STOPPED) if trial.endless else (_FINISHED,)):
        found.append(f"exit code {crawl.code}")
    for case in cases:
        ending = ended.endings[case.name]
        if not re.match(case.ends, ending):
            found.append(f"{case.name} ended as {ending!r}, not {case.ends!r}")
    if ended.left and not trial.endless:
        found.append(f"{ended.left} requests that never ended")
    return found


class _Ended(msgspec.Struct, frozen=True):
    endings: dict[str, str]
    left: int


class _Crawl:
    """A running ``uttu crawl`` and its folder."""

    def __init__(self, folder: Path, plan: Plan, settings: Mapping[str, Any], workers: int, site: int) -> None:
        self._folder = folder
        self._file = folder / ".uttu" / "crawls" / "hostile.db"
        self._good = plan.good.partition("://")[2].partition("/")[0]
        (folder / PLAN).write_bytes(msgspec.json.encode(plan))
        flags = [word for name, value in settings.items() for word in ("-s", f"{name}={_text(value)}")]
        command = [sys.executable, "-P", "-m", "uttu", "crawl", str(_SPIDER), "--workers", str(workers), *flags]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("UTTU_")}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), environment.get("PYTHONPATH"))))
        with (folder / "said").open("wb") as said:
            self._process = subprocess.Popen(
                [*command, "-o", "out.jsonl"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                env=environment,
            )
        self.family = ProcessTree(self._process.pid)
        self._site = ProcessTree(site)
        self.code: int | None = None
        self.findings: list[str] = []
        self.began = self.ended = time.monotonic()

    def waited(self, since: float, until: float) -> float:
        """Seconds in which the crawl, and then the good host, had no processor."""
        return self.family.waited(since, until) + self._site.waited(since, until)

    def watch(self, urls: Mapping[str, str], trial: Trial) -> None:
        """Wait until the hostile pages have ended, then until the crawl has."""
        if not self._wait(_START_SECONDS, (self._folder / BEGUN).exists):
            self.began = self.ended = time.monotonic()
            self._end("did not begin")
            return
        self.began = time.monotonic()
        over = self._wait(trial.patience, lambda: self._is_over(urls, trial))
        if over:
            self._wait(_AFTERMATH_SECONDS, lambda: False)
        self.ended = time.monotonic()
        if over and trial.endless and self._process.poll() is None:
            self._terminate()
            return
        (self._folder / STOP).touch()
        if over or (trial.may_fail and self._process.poll() is not None):
            if self._wait(_END_SECONDS, self._is_gone):
                self.code = self._process.returncode
            else:
                self._end("did not finish")
        else:
            self._end(f"not over after {trial.patience:g} s")

    def read(self, urls: Mapping[str, str]) -> _Ended:
        """How each page ended, and how many requests did not."""
        try:
            with self._database() as db:
                endings = {name: _ending(db, fingerprint(url)) for name, url in urls.items()}
                left = sum(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _TABLES)
        except sqlite3.Error as error:
            return _Ended(dict.fromkeys(urls, f"unknown: {error}"), 0)
        return _Ended(endings, left)

    def kill(self) -> list[str]:
        """End all processes that are left; returns their commands."""
        left = self.family.kill()
        self._process.wait()
        return left

    def said(self) -> str:
        """What the crawl printed."""
        return (self._folder / "said").read_text(errors="replace").strip()

    def _end(self, why: str) -> None:
        """Note that it did not end by itself, or too soon; ask it to."""
        if self.family.peak > _TOO_LARGE:
            why = "killed for its memory"
        if self._is_gone():
            self.code = self._process.returncode
            self.findings.append(f"exit code {self.code}")
        else:
            self.findings.append(why)
            self._terminate()

    def _terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        if not self._wait(_END_SECONDS, self._is_gone):
            self.findings.append("SIGTERM did not end it")
        self.code = self._process.poll()

    def _is_gone(self) -> bool:
        return self._process.poll() is not None

    def _wait(self, seconds: float, condition: Any) -> bool:
        """Look at the memory until the condition is met, the crawl has ended (which is none), or time is up."""
        until = time.monotonic() + seconds
        checked = 0.0
        while (now := time.monotonic()) < until:
            self.family.look()
            self._site.look()
            if self.family.peak > _TOO_LARGE:
                return False
            if now - checked >= _STATE_SECONDS or seconds < 1:
                checked = now
                if condition():
                    return True
                if self._process.poll() is not None:
                    return bool(condition())
            time.sleep(_LOOK_SECONDS)
        return bool(condition())

    def _is_over(self, urls: Mapping[str, str], trial: Trial) -> bool:
        """Whether all hostile pages have ended; their children as well, unless they are endless."""
        if trial.may_fail and not self._file.exists():
            return True  # the handler deleted it
        try:
            with self._database() as db:
                if not all(_ending(db, fingerprint(url)).startswith(("done", "dead")) for url in urls.values()):
                    return False
                if trial.endless:
                    return True
                lanes = "JOIN lanes ON lanes.id = lane WHERE lanes.name <> ?"
                return not any(
                    db.execute(f"SELECT 1 FROM {table} {lanes} LIMIT 1", (self._good,)).fetchone() for table in _TABLES
                )
        except sqlite3.Error:
            return False

    @contextlib.contextmanager
    def _database(self) -> Any:
        with contextlib.closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=5)) as db:
            yield db


_TABLES: Final = ("queue", "delayed", "leases")


def _ending(db: sqlite3.Connection, fp: int) -> str:
    """``done``, ``dead: kind: reason``, or where it is."""
    dead = db.execute("SELECT kind, reason FROM dead WHERE fp = ?", (fp,)).fetchone()
    if dead is not None:
        return f"dead: {dead[0]}: {dead[1]}"
    done = db.execute("SELECT status, note FROM history WHERE fp = ? ORDER BY seq DESC LIMIT 1", (fp,)).fetchone()
    if done is not None:
        return f"done: {done[1]}" if done[1] else "done"
    for table, word in zip(_TABLES, ("pending", "delayed", "leased"), strict=True):
        row = db.execute(f"SELECT attempt FROM {table} WHERE fp = ?", (fp,)).fetchone()
        if row is not None:
            return f"{word}, attempt {row[0]}"
    return "unknown"


def longest_gap(
    records: Sequence[Record],
    host: str,
    began: float,
    ended: float,
    waited: Callable[[float, float], float] = lambda since, until: 0.0,
) -> float:
    """The longest time between two requests to the host, from the last one before ``began`` until ``ended``.

    ``waited`` says how much of a time does not count.
    """
    times = sorted(record.time for record in records if record.host == host)
    before = [moment for moment in times if moment <= began][-1:]
    moments = [*before, *(moment for moment in times if began < moment < ended), ended]
    gaps = (later - earlier - waited(earlier, later) for earlier, later in pairwise(moments))
    return max(0.0, max(gaps, default=ended - began - waited(began, ended)))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
