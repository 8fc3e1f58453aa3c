"""The guardian: the process that the user starts, which runs the crawl in a child process and watches it.

A spider can end its process in ways that no code inside can handle: ``os._exit``, a segmentation fault in a library,
the kernel's out-of-memory killer, a loop in C that never returns. So ``uttu crawl`` and ``uttu worker`` fork at once,
before they have threads or connections. The child does all the work. The parent:

- forwards SIGINT and SIGTERM, and kills a child that does not react, so that no spider can make a crawl unstoppable;
- replaces a child that died without announcing its exit code in the black box, and prints which page's handler ran.
  The page is dead: at once if the process ended by its own doing, at the second time if it was killed (SIGKILL), which
  anybody may have done;
- replaces a child that failed later because a handler damaged it (closed its files). The new child checks itself after
  each handler, and the page that damages it again is dead;
- ends a child whose event loop is blocked by a handler, or by a callback that one left, that can't be interrupted;
- continues a child that a handler stopped (SIGSTOP).

If the parent is killed, the child is killed as well: by the kernel on Linux, elsewhere by a thread that reads a pipe.
If the parent is stopped (SIGSTOP), the child stops itself within half a second; the parent continues it later.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, NoReturn

from uttu import blackbox
from uttu.blackbox import Blackbox
from uttu.clients.addresses import mask_logins
from uttu.engine.worker_processes import CrashedPage, Pulse, Suspects, describe_exit, is_self_inflicted, is_stopped
from uttu.errors import BY_SIGNAL, FAILED

__all__ = ["CrashedPage", "EndProcess", "GuardedWork", "run_guarded"]

_POLL_SECONDS: Final = 0.5
# After a second signal, kill a child whose last heartbeat is older than this.
_UNRESPONSIVE_SECONDS: Final = 1.5
# After a second signal, or after SIGTERM and its grace period, kill a child that still runs after this time.
_LONGEST_END_SECONDS: Final = 15.0
_MAX_DEATHS: Final = 30
# The same limit for children that failed by their own doing while no handler ran. From the second one on, they check
# after each handler whether it damaged the process.
_MOST_FAILURES: Final = 3
_SHORT_LIFE_SECONDS: Final = 60.0
_FORWARDED: Final = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG: Final = 1
_log = logging.getLogger("uttu.worker")

GuardedWork = Callable[[tuple[CrashedPage, ...], float], int]
EndProcess = Callable[[Callable[[], None]], NoReturn]
"""Does the work and ends the process with the exit code that it came to."""


def run_guarded(work: GuardedWork, end: EndProcess) -> int:
    """Run ``work`` in a child process; returns its exit code.

    :param work: Called with the pages that crashed earlier children, and the seconds since the first child started;
        with ``()`` and 0 in the first child. Returns the exit code.
    """
    guardian = _Guardian(work, end)
    try:
        return guardian.run()
    finally:
        guardian.close()


class _Guardian:
    def __init__(self, work: GuardedWork, end: EndProcess) -> None:
        self._work = work
        self._end = end
        self._box = Blackbox.create()
        self._began = time.monotonic()
        self._suspects = Suspects()
        self._guilty: tuple[CrashedPage, ...] = ()
        self._runs = 0
        self._wary = False
        self._signals = 0
        self._received = 0
        self._signalled = 0.0
        self._child = 0
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)

    def close(self) -> None:
        self._box.close()
        signal.set_wakeup_fd(-1)
        for file in (self._wake, self._woken):
            os.close(file)

    def run(self) -> int:
        deaths = 0
        while True:
            began = time.monotonic()
            status = self._run_child()
            code = self._box.announced
            if code is not None and not self._box.harmed:
                return code
            if self._signals:
                return BY_SIGNAL + self._received
            deaths = deaths + 1 if time.monotonic() - began < _SHORT_LIFE_SECONDS else 1
            if not self._judge(status, deaths):
                return status if status > 0 else FAILED if status == 0 else BY_SIGNAL - status

    def _judge(self, status: int, deaths: int) -> bool:
        """Print what happened to a child that died unannounced; returns whether to start another."""
        page = self._box.handled
        ended = describe_exit(status)
        if page is None:
            was_at_work = self._pulse.was_seen or self._box.beats > 0
            again = self._box.harmed or was_at_work
            again = again and deaths < (_MOST_FAILURES if is_self_inflicted(status) else _MAX_DEATHS)
            self._wary = self._wary or again
            hint = "Starting it again" if again else "Run the same command to go on; nothing is lost"
            _print_message(f"The process that crawls {ended}, and no handler was running. {hint}")
            return again
        guilty = self._suspects.judge(page, status, self._pulse.stuck)
        if guilty is not None:
            self._guilty = (*self._guilty, guilty)
        handler = f"handler {page.handler!r}" if page.handler else "handler"
        fate = "The page is dead" if guilty is not None else "The page is tried once more"
        again = deaths < _MAX_DEATHS
        hint = "the crawl goes on" if again else f"that was the {deaths}th time in a row: giving up"
        _print_message(f"The process that crawls {ended} in the {handler} of {page.url}. {fate}; {hint}")
        return again

    def _run_child(self) -> int:
        """Run one child to its end; returns its exit code, or minus the number of the signal that ended it."""
        self._box.clear()
        if self._wary:
            self._box.set_wary()
        self._runs += 1
        lifeline, held = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        self._child = os.fork()
        if self._child == 0:
            os.close(held)
            self._be_child(lifeline, parent)
        os.close(lifeline)
        try:
            return self._watch()
        finally:
            os.close(held)

    def _be_child(self, lifeline: int, parent: int) -> NoReturn:
        signal.set_wakeup_fd(-1)
        for number in (*_FORWARDED, signal.SIGCHLD, signal.SIGCONT):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for file in (self._wake, self._woken):
            os.close(file)
        _end_with_parent(parent, lifeline)
        blackbox.inherit(self._box)
        blackbox.guardian = parent
        faulthandler.enable()
        guilty, spent = self._guilty, time.monotonic() - self._began if self._runs > 1 else 0.0

        def work() -> None:
            sys.exit(self._work(guilty, spent))

        self._end(work)

    def _watch(self) -> int:
        for number in (*_FORWARDED, signal.SIGCHLD, signal.SIGCONT):
            signal.signal(number, self._receive)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        pulse = self._pulse = Pulse(self._box, self._child, _POLL_SECONDS)
        while True:
            pid, status = os.waitpid(self._child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            pulse.look()
            if self._is_to_be_killed(pulse.quiet, time.monotonic()):
                os.kill(self._child, signal.SIGKILL)
            elif not pulse.urge() and self._box.halted and is_stopped(self._child):
                os.kill(self._child, signal.SIGCONT)
            select.select([self._wake], [], [], _POLL_SECONDS)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
            if self._signals and is_stopped(self._child):
                os.kill(self._child, signal.SIGCONT)  # a stopped process can't end

    def _is_to_be_killed(self, quiet: float, now: float) -> bool:
        if not self._signals:
            return False
        waited = now - self._signalled
        if self._signals > 1 and (quiet > _UNRESPONSIVE_SECONDS or waited > _LONGEST_END_SECONDS):
            return True
        grace = self._box.grace
        # Also kill it if its event loop is blocked by code that can't be interrupted: it will not end by itself.
        return (
            self._received == signal.SIGTERM
            and grace > 0
            and (waited > grace + _LONGEST_END_SECONDS or quiet > _LONGEST_END_SECONDS / 2)
        )

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGCHLD:
            return
        if number in _FORWARDED:
            self._signals += 1
            self._received = number
            self._signalled = time.monotonic()
            self._box.forward()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, number)


def _end_with_parent(parent: int, lifeline: int) -> None:
    """Make this process end when its parent ends, also if the parent is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(lifeline)
        if os.getppid() != parent:
            os._exit(BY_SIGNAL + signal.SIGKILL)
        return

    def wait() -> None:
        os.read(lifeline, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="uttu-lifeline", daemon=True).start()


def _print_message(text: str) -> None:
    text = mask_logins(text)
    print(f"uttu: {text}", file=sys.stderr, flush=True)
    _log.info("%s", text)
