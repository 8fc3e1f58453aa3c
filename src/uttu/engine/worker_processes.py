"""Worker processes on this machine, and the pages that crashed one.

Each process is started with a pipe to its standard input that is never written to: if the supervisor is killed, the
pipe closes, and the workers drain instead of crawling on unsupervised. A process that dies is replaced; its pages go
back to their lanes.

Each process writes to its black box (:mod:`uttu.blackbox`) which page's handler is running. If it dies in a handler by
its own doing (an exit, SIGSEGV, SIGABRT …), that page is dead. If it was killed from outside, the page is dead at the
second time. A process whose event loop is blocked by a handler that can't be interrupted is ended with SIGABRT, and
with SIGKILL if it ignores that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

import msgspec

from uttu.blackbox import VARIABLE, Blackbox, HandledPage
from uttu.clients.addresses import mask_logins
from uttu.engine.aio import task_group
from uttu.errors import UttuError
from uttu.frontier.base import Frontier
from uttu.model import Dead, Lease, Request
from uttu.model.lease import DeadKind

# Signals that the process causes itself. Any other signal may come from another process.
_SELF_INFLICTED: Final = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
    }
)
# Exit codes of a process that a handler broke: it cancelled the crawl's task, or it closed the process's files.
CANCELLED: Final = 71
HARMED: Final = 72
_BY_CODE: Final = {
    CANCELLED: "its handler cancelled tasks of the crawl",
    HARMED: "its handler closed the files of the process, or forbade files to grow",
}
# A child whose last heartbeat is older than this gets SIGURG, because its watchdog thread may be unable to run.
_QUIET_SECONDS: Final = 1.0
# A child that still runs this long after SIGABRT is killed.
_ABORT_SECONDS: Final = 2.0
# A child that is stopped (SIGSTOP) while a handler runs is continued after this time: the handler may have done it.
_STOPPED_SECONDS: Final = 5.0


class CrashedPage(msgspec.Struct, frozen=True):
    """A page whose handler crashed its process."""

    page: HandledPage
    reason: str

    @classmethod
    def of(cls, page: HandledPage, status: int, stuck: float = 0.0) -> Self:
        """Build the record with its reason.

        :param status: The exit status, as in :mod:`subprocess`: negative for a signal.
        :param stuck: Seconds that the handler had blocked the process when it was ended for that; 0 if it was not.
        """
        why = f"it blocked the worker for {stuck:.0f} s and can't be interrupted" if stuck else ""
        why = _BY_CODE.get(status, why)
        return cls(page, f"took the worker down: {why or f'its process {describe_exit(status)}'}")


class Suspects:
    """Counts by fingerprint how often a process died in the handler of a page.

    :param former: Fingerprints from an earlier parent process, one for each time.
    """

    def __init__(self, former: Iterable[int] = ()) -> None:
        self._times = Counter(former)

    @property
    def fingerprints(self) -> tuple[int, ...]:
        return tuple(self._times)

    def judge(self, page: HandledPage, status: int, stuck: float = 0.0) -> CrashedPage | None:
        """Decide whether a page crashed its process; None if the process may have been killed from outside.

        A page is blamed at once if its process ended by its own doing, or was ended because it was ``stuck`` for that
        many seconds. Otherwise it is blamed at the second time.
        """
        self._times[page.fingerprint] += 1
        if stuck or is_self_inflicted(status) or self._times[page.fingerprint] > 1:
            return CrashedPage.of(page, status, stuck)
        return None


class Pulse:
    """Reads a child process's heartbeat from its black box and measures how long its event loop has been blocked.

    :param look_seconds: The interval in which :meth:`look` is called.
    """

    def __init__(self, box: Blackbox, pid: int, look_seconds: float) -> None:
        self._box = box
        self._pid = pid
        self._longest = 2 * look_seconds
        self._looked = time.monotonic()
        self._beats = 0
        self.was_seen = False
        """Whether the child has sent any heartbeat."""
        self.quiet = 0.0
        """Seconds since the last heartbeat."""
        self.stuck = 0.0
        """The value of :attr:`quiet` when the child was ended for it; 0 if it was not."""
        self._stopped = 0.0

    def look(self) -> None:
        now = time.monotonic()
        # Count two intervals at most: if this process was stopped, the time says nothing about the child.
        passed, self._looked = min(now - self._looked, self._longest), now
        beats = self._box.beats
        self.was_seen = self.was_seen or beats > 0
        stopped = is_stopped(self._pid)
        self._stopped = self._stopped + passed if stopped else 0.0
        is_quiet = beats and beats == self._beats and not stopped
        self.quiet = self.quiet + passed if is_quiet else 0.0
        self._beats = beats

    def urge(self) -> bool:
        """Send a signal to a child that does not get on. Returns whether one was sent.

        - SIGURG to its watchdog if the heartbeat is late;
        - SIGABRT if what blocks it can't be interrupted, and SIGKILL ``_ABORT_SECONDS`` later, because a handler may
          have ignored all other signals;
        - SIGCONT if it was stopped in a handler (SIGSTOP) for ``_STOPPED_SECONDS``.
        """
        if 0 < self._box.patience < self.quiet:
            self.stuck = self.stuck or self.quiet
            # SIGABRT first: faulthandler prints a traceback for it.
            os.kill(self._pid, signal.SIGABRT if self.quiet < self.stuck + _ABORT_SECONDS else signal.SIGKILL)
        elif self.quiet > _QUIET_SECONDS:
            os.kill(self._pid, signal.SIGURG)
        elif self._stopped > _STOPPED_SECONDS and self._box.handled is not None and not self._box.halted:
            os.kill(self._pid, signal.SIGCONT)
        else:
            return False
        return True


def is_stopped(pid: int) -> bool:
    """Whether a child of this process is stopped (SIGSTOP)."""
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def is_self_inflicted(status: int) -> bool:
    """Whether a process with this exit status (as in :mod:`subprocess`) ended by its own doing."""
    return status >= 0 or -status in _SELF_INFLICTED


def describe_exit(status: int) -> str:
    """Describe an exit status in a message."""
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    return f"was ended by signal {-status} ({name})"


async def settle_crashed(frontier: Frontier, pages: Sequence[CrashedPage]) -> None:
    """Settle the leases of these pages as dead.

    If a lease was lost meanwhile, the frontier refuses the outcome and another worker leases the page;
    ``Worker.condemn`` handles that case.
    """
    if pages:
        await frontier.settle([_make_dead(each) for each in pages])


def _make_dead(each: CrashedPage) -> Dead:
    page = each.page
    # The store goes by the lease's id; the rest is not looked at.
    request = Request.from_canonical(page.url, handler=page.handler)
    lease = Lease(
        id=page.lease, fingerprint=page.fingerprint, lane=request.lane, request=request, attempt=1, wait=0, deadline=0
    )
    return Dead(lease=lease, kind=DeadKind.LOST, reason=each.reason)


# Give up after _MOST_DEATHS unexplained deaths in a row, or after _MAX_CRASHED_PAGES deaths that pages are blamed for.
# A life of _SHORT_LIFE_SECONDS resets both counts.
_MOST_DEATHS: Final = 10
# The same limit for processes that exited while no handler ran: a thread or a callback of the spider may have done it.
_MOST_EXITS: Final = 2
_MAX_CRASHED_PAGES: Final = 30
_SHORT_LIFE_SECONDS: Final = 60.0
_RESTART_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 1.0
# Kill a worker whose event loop has been blocked for this long, while draining and while stopping.
_DRAIN_SECONDS: Final = 8.0
_STOP_SECONDS: Final = 1.5
# Exit codes of uttu commands. A worker prints a message before it exits with one of them.
_EXPLAINED_EXITS: Final = range(1, 6)
_log = logging.getLogger("uttu.worker")


class WorkerProcesses:
    """Keeps ``count`` worker processes running; implements :class:`uttu.engine.supervisor.WorkerGroup`.

    :param environment: Extra environment variables, for settings such as passwords that must not appear in the list of
        processes.
    :param frontier: Where pages that crashed a process are settled as dead.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        environment: Mapping[str, str] | None = None,
        frontier: Frontier | None = None,
    ) -> None:
        self._command = command
        self._count = count
        self._environment = environment or {}
        self._frontier = frontier
        self._running: set[asyncio.subprocess.Process] = set()
        self._suspects = Suspects()
        self._wary = False
        self._draining = self._stopping = False

    async def run(self) -> None:
        async with task_group() as group:
            for _ in range(self._count):
                group.create_task(self._keep_running())

    async def bury(self, pages: Sequence[CrashedPage]) -> None:
        if self._frontier is not None:
            await settle_crashed(self._frontier, pages)

    def drain(self) -> None:
        if not self._draining:
            self._draining = True
            self._signal(signal.SIGTERM)

    def stop(self) -> None:
        # Workers drain at the first SIGTERM and stop at the second.
        self.drain()
        self._stopping = True
        self._signal(signal.SIGTERM)

    def check_now(self) -> None:
        """Do nothing: each process listens on the bus itself."""

    async def _keep_running(self) -> None:
        deaths = taken_down = code = 0
        box = Blackbox.create()
        try:
            while deaths < _MOST_DEATHS and taken_down < _MAX_CRASHED_PAGES and not self._draining:
                began = asyncio.get_running_loop().time()
                box.clear()
                if self._wary:
                    box.set_wary()
                code, stuck = await self._run_one(box)
                said = box.announced if box.attached else code
                if said == 0 or self._draining:
                    return
                page = box.handled
                ended_quietly = code >= 0 and page is None and (not box.beats or deaths >= _MOST_EXITS)
                if not box.harmed and ((said is not None and said > 0) or ended_quietly):
                    by_spider = "something in the spider ended it"
                    why = f"its message is above, unless {by_spider}" if code in _EXPLAINED_EXITS else by_spider
                    raise UttuError(f"A worker process failed with exit code {code}; {why}")
                if asyncio.get_running_loop().time() - began >= _SHORT_LIFE_SECONDS:
                    deaths = taken_down = 0
                if page is not None and await self._judge(page, code, stuck):
                    taken_down += 1
                else:
                    deaths += 1
                    # A handler may have damaged the process. The next one checks itself after each handler (wary).
                    self._wary = self._wary or page is None
                await asyncio.sleep(_RESTART_SECONDS)
        finally:
            box.close()
        if not self._draining:
            times = deaths + taken_down
            raise UttuError(f"A worker process died {times} times in a row; the last time it {describe_exit(code)}")

    async def _judge(self, page: HandledPage, code: int, stuck: float) -> bool:
        """Settle the page in whose handler a process died, if it is to blame; returns whether it is."""
        took_down = self._suspects.judge(page, code, stuck)
        if took_down is not None:
            await self.bury([took_down])
        fate = "The page is dead" if took_down is not None else "The page is tried once more"
        url = mask_logins(page.url)
        _log.warning("A worker process %s in the handler of %s. %s; others go on", describe_exit(code), url, fate)
        return took_down is not None

    async def _run_one(self, box: Blackbox) -> tuple[int, float]:
        """Run one process to its end; returns its exit status, and how long it was blocked if it was ended for that."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=os.environ | self._environment | {VARIABLE: str(box.file)},
            pass_fds=(box.file,),
        )
        _log.info("Worker process %d has started", process.pid)
        self._running.add(process)
        if self._draining:
            process.send_signal(signal.SIGTERM)
        ending = asyncio.ensure_future(process.wait())
        try:
            stuck = await self._watch(process, ending, box)
            _log.info("Worker process %d %s", process.pid, describe_exit(ending.result()))
            return ending.result(), stuck
        finally:
            ending.cancel()
            self._running.discard(process)

    async def _watch(self, process: asyncio.subprocess.Process, ending: asyncio.Future[int], box: Blackbox) -> float:
        """Watch a process until it ends; returns how long its event loop was blocked, if it was ended for that."""
        pulse = Pulse(box, process.pid, _LOOK_SECONDS)
        while not (await asyncio.wait([ending], timeout=_LOOK_SECONDS))[0]:
            pulse.look()
            if self._draining and pulse.quiet > (_STOP_SECONDS if self._stopping else _DRAIN_SECONDS):
                process.kill()
            elif process.returncode is None:
                pulse.urge()
        return pulse.stuck

    def _signal(self, number: signal.Signals) -> None:
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
