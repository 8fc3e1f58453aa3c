"""The watchdog: a thread that notices when a handler blocks the event loop, and interrupts it.

The event loop stamps a heartbeat every ``_BEAT_SECONDS``. The thread checks its age. If the heartbeat is late:

    after WARN_SECONDS    log a warning with the page, its handler and the line of code that runs
    after ``most``        interrupt the step: the page is dead, the crawl continues
    too much memory       the same, if the process has grown by ``most_memory`` since the heartbeat
    on shutdown           interrupt the step after ``_STOP_SECONDS``: the page is given back, its attempt not counted

A step is interrupted by a signal to the main thread. Python runs signal handlers between two bytecode instructions of
the main thread; ``re`` and ``time.sleep`` check for signals, too. The signal handler raises :class:`HandlerBlocked`,
but only inside a step of the user's code, so the engine itself is never interrupted. A function that swallows the
exception is interrupted at every check. After ``_MOST_SWALLOWED`` times the process exits, if a parent process will
replace it.

The signals have two sources. The thread sends SIGURG, which processes ignore by default. But a regular expression
holds Python's global lock while it runs, so the thread can't run then. For this case every heartbeat resets a system
timer (ITIMER_VIRTUAL, SIGVTALRM), which fires after the process used ``_RING_SECONDS`` of CPU time without a heartbeat.
The timer does not advance while the process sleeps; the thread covers that case. A parent process that watches this
one sends SIGURG, too.

C code that does not check for signals can't be interrupted from inside. The parent process notices that the heartbeats
stop and ends the process (see :mod:`uttu.engine.worker_processes` and :mod:`uttu.runtime.guardian`).

Time during which the process was stopped (SIGSTOP, a suspended machine) does not count: the thread was stopped as
well, notices the gap and starts counting again.
"""

from __future__ import annotations

import _weakrefset
import asyncio
import contextlib
import functools
import itertools
import logging
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Final

from uttu import blackbox
from uttu.blackbox import Blackbox
from uttu.clients.addresses import mask_logins
from uttu.engine.handler_steps import START, HandlerBlocked, StepTracker
from uttu.model import Lease

WARN_SECONDS: Final = 5.0
# Exit code of a process that ends because a handler catches every interruption.
STUCK: Final = 70
_BEAT_SECONDS: Final = 0.25
_STOP_SECONDS: Final = 1.0
_MOST_SWALLOWED: Final = 5
# If one wait of the thread took this many times ``_BEAT_SECONDS``, the process was stopped meanwhile.
_STOPPED: Final = 8
_RING_SECONDS: Final = 1.0
_MOST_FRAMES: Final = 2000
_DEEPEST: Final = 50_000
# How often memory is read: a handler may take 1 GB in a second.
_LOOK_SECONDS: Final = 0.05
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_WEAK_REFERENCES: Final = frozenset({weakref.__file__, _weakrefset.__file__})
_DEBUGGERS: Final = frozenset({"bdb", "pdb"})
_OURS: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The modules of asyncio that run callbacks. Frames outside them belong to the caller of the loop, not to a callback.
_LOOP: Final = frozenset(
    os.path.join(os.path.dirname(asyncio.__file__), name) for name in ("runners.py", "base_events.py", "events.py")
)
_log = logging.getLogger("uttu.watchdog")

_active: list[Watchdog] = []


def notify_stop() -> None:
    """Shorten the wait of all watchdogs to ``_STOP_SECONDS``, because a signal asked this process to end."""
    for watchdog in _active:
        watchdog.hurry()


class Watchdog:
    """Watches the event loop of the thread in which :meth:`watching` is entered.

    :param most: Seconds that a step may block the loop; 0 for no limit.
    :param box: The black box that a parent process reads, if one watches this process.
    :param most_memory: Bytes by which the process may grow while a step blocks the loop; 0 for no limit.
    """

    def __init__(self, steps: StepTracker, most: float, box: Blackbox | None = None, most_memory: int = 0) -> None:
        self._most_memory = most_memory
        self._memory = self._grown = 0
        self._measured = 0.0
        self._steps = steps
        self._most = most
        self._box = box
        self._beat = 0.0
        self._hurried = False
        self._warned = False
        self._swallowed = 0
        self._over = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the running event loop while the block runs."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._over.clear()
        # Only the main thread receives signals. A crawl in another thread gets warnings, but is not interrupted.
        self._armed = threading.current_thread() is threading.main_thread()
        if self._armed:
            for number in (signal.SIGURG, signal.SIGVTALRM):
                signal.signal(number, _interrupt)
        self._stamp()
        self._task = asyncio.current_task()
        self._steps.watch_over(self._task)
        if not _active:
            _guard_stop(self._loop)
        _active.append(self)
        thread = threading.Thread(target=self._watch, name="uttu-watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            _active.remove(self)
            if not _active:
                vars(self._loop).pop("stop", None)
            self._steps.watch_over(None)
            self._over.set()
            self._timer.cancel()
            thread.join()
            if self._box is not None and all(each._box is not self._box for each in _active):
                self._box.beat(0)
            if self._armed and not _active:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                for number in (signal.SIGURG, signal.SIGVTALRM):
                    signal.signal(number, signal.SIG_DFL)

    @property
    def is_running(self) -> bool:
        """Whether a step of a handler is running."""
        return self._steps.running is not None

    @property
    def is_at_work(self) -> bool:
        """Whether a parent process watches this one (so the loop runs only Uttu) and the crawl's task has not ended."""
        return self._box is not None and self._task is not None and not self._task.done()

    def hurry(self) -> None:
        """Interrupt steps after ``_STOP_SECONDS``: the process is shutting down."""
        self._hurried = True

    def _stamp(self) -> None:
        self._beat = time.monotonic()
        self._warned = False
        self._swallowed = 0
        self._grown = 0
        if self._box is not None:
            # Counted in the box: while a start function runs, the worker's watchdog stamps the same box.
            self._box.beat(self._box.beats + 1)
        if self._armed:
            signal.setitimer(signal.ITIMER_VIRTUAL, _RING_SECONDS, _RING_SECONDS)
        self._timer = self._loop.call_later(_BEAT_SECONDS, self._stamp)

    def _watch(self) -> None:
        looked, used = time.monotonic(), time.process_time()
        while not self._over.wait(_LOOK_SECONDS if self._most_memory else _BEAT_SECONDS):
            now, computed = time.monotonic(), time.process_time()
            # A long wait means that the process was stopped, unless it used CPU time: then a step held the global lock.
            if now - looked > _STOPPED * _BEAT_SECONDS and computed - used < (now - looked) / 4:
                self._beat = now
            looked, used = now, computed
            if blackbox.guardian and _is_halted(blackbox.guardian):
                self._halt()
            late = now - self._beat
            if self._most_memory:
                self._look_at_memory()
            if self._is_due(late):
                if self._armed:
                    signal.pthread_kill(self._thread, signal.SIGURG)
            elif late > WARN_SECONDS:
                self._warn(late, sys._current_frames().get(self._thread))

    def _is_due(self, late: float) -> bool:
        """Whether a heartbeat that is ``late`` by this many seconds means that the running step must be interrupted."""
        return (self._hurried and late > _STOP_SECONDS) or 0 < self._most < late or self._grown > 0

    def _look_at_memory(self) -> None:
        """Note if a step runs and the process has grown too much since its last heartbeat."""
        memory = _read_memory()
        if self._measured != self._beat or self._steps.running is None:
            self._measured, self._memory = self._beat, memory
        elif memory - self._memory > self._most_memory:
            self._grown = memory - self._memory

    def _halt(self) -> None:
        """Stop this process, because the user stopped its guardian process."""
        if self._box is not None:
            self._box.set_halted(True)
            os.kill(os.getpid(), signal.SIGSTOP)
            self._box.set_halted(False)

    def _warn(self, late: float, frame: FrameType | None) -> None:
        if self._warned:
            return
        self._warned = True
        lease = self._steps.running
        if lease is not None:
            _log.warning("%s has blocked the worker for %.0f s at %s", _name(lease), late, _describe_frame(frame))
        elif _active[:1] == [self] and all(each._steps.running is None for each in _active):
            _log.warning("The event loop has been blocked for %.0f s at %s", late, _describe_frame(frame))

    def signalled(self, frame: FrameType | None) -> None:
        """Handle a signal in the main thread: interrupt the running step if its time is over.

        :raises HandlerBlocked: the step has blocked the loop for too long.
        """
        late = time.monotonic() - self._beat
        if not self._is_due(late):
            if late > WARN_SECONDS:
                self._warn(late, frame)
            return
        # Under a parent process the whole loop is Uttu's, so a task that a handler started may be interrupted, too.
        # Otherwise the loop may belong to another program, and only tracked steps are interrupted.
        is_users = self._steps.running is not None or (self._box is not None and _is_task_of_user(frame))
        # Python prints and drops exceptions of callbacks of weak references. The next signal will find other code.
        if not is_users or _is_debugged(frame) or (frame is not None and frame.f_code.co_filename in _WEAK_REFERENCES):
            return
        # To leave a deep recursion by an exception takes several times its memory.
        if self._swallowed >= _MOST_SWALLOWED or _is_deep(frame):
            self._end(late, frame)
        self._swallowed += 1
        took = f"took {self._grown // 2**20} MB of memory and " if self._grown else ""
        reason = f"{took}blocked the worker for {late:.0f} s at {_describe_frame(frame)}"
        raise HandlerBlocked(reason, stopping=self._hurried and not self._grown)

    def _end(self, late: float, frame: FrameType | None) -> None:
        """Exit the process, because the step catches every exception. Without a parent to replace it, let it run on."""
        if self._box is None and not self._hurried:
            return
        name = _name(self._steps.running) if self._steps.running else "A task of a handler"
        blocked = f"has blocked the worker for {late:.0f} s at {_describe_frame(frame)}"
        why = "calls itself too deeply to be interrupted" if _is_deep(frame) else "catches every exception"
        _log.error("%s %s, and %s: ending the process", name, blocked, why)
        os._exit(STUCK)


def _guard_stop(loop: asyncio.AbstractEventLoop) -> None:
    """Replace ``loop.stop()``: it raises inside a step of a handler, and is ignored in timers and tasks of a handler.

    Without a parent process the loop may belong to another program, which may stop it. Then only steps are refused.
    """
    stop = loop.stop

    def stop_if_allowed() -> None:
        if any(watchdog.is_running for watchdog in _active):
            raise RuntimeError("A handler must not stop the event loop: the whole crawl runs on it")
        if any(watchdog.is_at_work for watchdog in _active):
            _log.warning("Something in the spider stops the event loop, on which the crawl runs: that is ignored")
        else:
            stop()

    loop.stop = stop_if_allowed  # type: ignore[method-assign]


def _interrupt(number: int, frame: FrameType | None) -> None:
    for watchdog in _active:
        watchdog.signalled(frame)


def _name(lease: Lease) -> str:
    """Describe the running function in a log message."""
    if lease is START:
        return "@spider.start"
    handler = f"The handler {lease.request.handler!r}" if lease.request.handler else "The handler"
    return f"{handler} of {mask_logins(lease.request.url)}"


def _read_memory() -> int:
    """Bytes of memory that this process uses; 0 on systems without ``/proc``."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read(256).split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _is_deep(frame: FrameType | None) -> bool:
    return next(itertools.islice(_walk(frame), _DEEPEST, None), None) is not None


def _walk(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_halted(pid: int) -> bool:
    """Whether a process is stopped (state T in ``/proc``). False on systems without ``/proc``."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(512).rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and its callers, ``_MOST_FRAMES`` at most: a recursion may have made millions."""
    return itertools.islice(_walk(frame), _MOST_FRAMES)


def _is_debugged(frame: FrameType | None) -> bool:
    """Whether the code runs under a debugger; then it is not interrupted."""
    return any(each.f_globals.get("__name__") in _DEBUGGERS for each in _frames(frame))


def _is_task_of_user(frame: FrameType | None) -> bool:
    """Whether the loop is running a task that a handler started: user code that the engine did not call."""
    outermost = ""
    for each in _frames(frame):
        file = os.path.abspath(each.f_code.co_filename)
        if file in _LOOP:
            break
        outermost = file
    return bool(outermost) and _is_own(outermost)


def _is_own(file: str) -> bool:
    """Whether a file is user code: neither a library nor part of Uttu."""
    return not file.startswith((*_find_libraries(), _OURS)) and "<frozen" not in file


def _describe_frame(frame: FrameType | None) -> str:
    """Format the innermost line of user code, or else the innermost line: ``spider.py:12 in listing``."""
    if frame is None:
        return "an unknown line"
    found = next((each for each in _frames(frame) if _is_own(os.path.abspath(each.f_code.co_filename))), frame)
    return f"{os.path.basename(found.f_code.co_filename)}:{found.f_lineno} in {found.f_code.co_name}"


@functools.cache
def _find_libraries() -> tuple[str, ...]:
    """The folders of the standard library and of installed packages."""
    import sysconfig  # slow to import, and seldom needed

    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
