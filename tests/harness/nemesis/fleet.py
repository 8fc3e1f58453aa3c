"""The processes of a run: ``uttu crawl``, which is run again when it was killed, and workers that join and go.

All are in one process group with a guard, a shell that reads from a pipe whose other end only this process has:
however this process ends, the pipe closes, and the guard kills them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.harness.nemesis.census import CRAWL
from uttu.errors import FAILED, STORE

UTTU: Final = (sys.executable, "-P", "-m", "uttu")
_GUARD: Final = "read -r never; kill -9 0"
_AGAIN_SECONDS: Final = 0.2
# A process that can't reach the server when it starts says so and ends; one that has begun must wait for it.
_STARTING_SECONDS: Final = 6.0
# What a crawl that has just ended says to being paused or resumed.
_SENSELESS: Final = ("is not running, so it can't be paused", "is not paused")
_SPIDER: Final = f"""
import os
from uttu import Page, Spider

spider = Spider("{CRAWL}", start=os.environ["NEMESIS_START"], private=True)

@spider.page
def page(page: Page):
    yield {{"url": page.url}}
    yield page.follow_all("a")
"""


class Process:
    """One process, from its start to its end."""

    def __init__(self, words: Sequence[str], child: asyncio.subprocess.Process, log: Path) -> None:
        self.words = words
        self.began = time.time()
        self.is_frozen = self.is_leaving = False
        self._child = child
        self._log = log

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def code(self) -> int | None:
        return self._child.returncode

    def send(self, number: signal.Signals) -> None:
        # Not by the child's own method, which looks whether it lives and so takes its exit code from who waits for it.
        self._signal(self.pid, number)

    def freeze(self) -> None:
        """Stop it and its child at once: a guardian that is stopped alone stops its child a moment later."""
        self.is_frozen = True
        for pid in (*self._children(), self.pid):
            self._signal(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in (*self._children(), self.pid):
            self._signal(pid, signal.SIGCONT)
        self.is_frozen = False

    def _children(self) -> list[int]:
        try:
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        except OSError:
            return []

    def _signal(self, pid: int, number: signal.Signals) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def leave(self) -> None:
        self.is_leaving = True
        self.send(signal.SIGTERM)

    async def wait(self) -> int:
        return await self._child.wait()

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def __str__(self) -> str:
        return f"uttu {self.words[0]} (process {self.pid})"


class Fleet:
    """``is_server_to_blame(since)``: whether the server was away or hung up since then."""

    def __init__(
        self,
        folder: Path,
        program: Sequence[str],
        settings: Sequence[str],
        environment: dict[str, str],
        is_server_to_blame: Callable[[float], bool],
    ) -> None:
        self.all: list[Process] = []
        self.faults: list[str] = []
        self.crawl: Process | None = None
        self.is_over = asyncio.Event()
        self._folder = folder
        self._program = program
        self._settings = [word for setting in settings for word in ("-s", setting)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("UTTU_")}
        self._environment = clean | environment
        self._is_server_to_blame = is_server_to_blame
        self._joined: list[asyncio.Task[None]] = []
        self._started: list[Process] = []
        self._numbers = itertools.count()
        (folder / "spider.py").write_text(_SPIDER)
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0
        )

    @property
    def workers(self) -> list[Process]:
        """Those that live and are no ``uttu crawl``."""
        return [process for process in self.alive if process.words[0] == "worker"]

    @property
    def running(self) -> list[Process]:
        """All that live, short commands included."""
        return [process for process in self._started if process.code is None]

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.all if process.code is None]

    async def supervise(self) -> None:
        """Run ``uttu crawl`` until it ends in order; again when it was killed."""
        while True:
            self.crawl = await self._enlist("crawl", "spider.py", "-o", "out.jsonl", *self._settings)
            code = await self.crawl.wait()
            if code == 0:
                self.is_over.set()
                return
            if code != -signal.SIGKILL and not self._may_fail(self.crawl, code):
                self._blame(self.crawl, code)
                self.is_over.set()
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    def join(self) -> None:
        """One more worker."""
        self._joined.append(asyncio.create_task(self._work()))

    async def rest(self) -> None:
        """Until all workers are gone."""
        await asyncio.gather(*self._joined)

    async def tell(self, *words: str) -> bool:
        """Run a short command, again while the server is away. False: it makes no sense for the crawl as it stands."""
        while True:
            process = await self._start(*words)
            code = await process.wait()
            if code == 0:
                return True
            if not self._may_fail(process, code):
                if code != FAILED or not any(said in process.said() for said in _SENSELESS):
                    self._blame(process, code)
                return False
            await asyncio.sleep(_AGAIN_SECONDS)

    async def close(self) -> None:
        """Kill what is left."""
        for task in self._joined:
            task.cancel()
        await asyncio.gather(*self._joined, return_exceptions=True)
        assert self._guard.stdin
        self._guard.stdin.close()
        self._guard.wait()
        await asyncio.gather(*(process.wait() for process in self._started))

    async def _work(self) -> None:
        """Take part until the crawl is over, or this worker is killed or told to leave."""
        while not self.is_over.is_set():
            process = await self._enlist("worker", "spider.py")
            code = await process.wait()
            # One that is told to leave before it has begun ends by the signal itself.
            if code in (0, -signal.SIGKILL) or (process.is_leaving and code == -signal.SIGTERM):
                return
            if not self._may_fail(process, code):
                # It may have come just too late.
                if "is not running (finished)" not in process.said():
                    self._blame(process, code)
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _start(self, *words: str) -> Process:
        log = self._folder / f"log-{next(self._numbers)}.txt"
        with log.open("wb") as sink:
            child = await asyncio.create_subprocess_exec(
                *self._program,
                *words,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                process_group=self._guard.pid,
            )
        process = Process(words, child, log)
        self._started.append(process)
        return process

    async def _enlist(self, *words: str) -> Process:
        process = await self._start(*words)
        self.all.append(process)
        return process

    def _may_fail(self, process: Process, code: int) -> bool:
        starting = time.time() - process.began < _STARTING_SECONDS
        return code == STORE and starting and self._is_server_to_blame(process.began)

    def _blame(self, process: Process, code: int) -> None:
        self.faults.append(f"{process} ended with {code}:\n{process.said()[-2000:]}")
