"""Shared memory in which a worker process records the page whose handler is running; its parent reads it.

The memory begins with integers of 8 bytes each:

    0  lease id      of the page whose handler is running; 0: no handler is running
    1  fingerprint   of that page
    2  text length   in bytes
    3  state         bits: 1 a process writes here, 2 it announced its exit code, 4 a handler damaged it
    4  exit code     if announced
    5  beats         heartbeats of the event loop, counted by the watchdog; 0: no watchdog runs
    6  grace         milliseconds that pages in flight have after SIGTERM
    7  patience      milliseconds after which a handler that blocks the loop counts as not interruptible; 0: never
    8  halted        1: the process stopped itself because its parent is stopped
    9  forwarded     number of signals that the parent forwarded
   10  wary          1: check after each handler whether it damaged the process

At byte 128 follows the text: the URL, a zero byte, the handler's name.

When a handler crashes its process (``os._exit``, a segmentation fault, the kernel's out-of-memory killer), no code in
the process can report it. The memory outlives the process, so the parent knows the page. Recording a page is a store
to memory without a system call, and takes about half a microsecond.

A handler may also damage its process so that it fails later: close its files, or set the file size limit. Checking for
that after each handler takes system calls, so a process does it only if the one before it failed that way (``wary``).

There is one writer. It writes the text before the lease id, so a lease id always has its text.
"""

from __future__ import annotations

import mmap
import os
import resource
import sys
from typing import Final

import msgspec

SIZE: Final = 4096
# Environment variable with the file descriptor that a parent passes to a worker process.
VARIABLE: Final = "_UTTU_BLACKBOX"
_TEXT: Final = 128
_MOST_TEXT: Final = SIZE - _TEXT
_LEASE, _FINGERPRINT, _LENGTH, _STATE, _CODE, _BEATS, _GRACE, _PATIENCE, _HALTED, _FORWARDED, _WARY = range(11)
_ATTACHED, _ENDED, _HARMED = 1, 2, 4


class HandledPage(msgspec.Struct, frozen=True):
    """The page whose handler was running."""

    lease: int
    fingerprint: int
    url: str
    handler: str


class Blackbox:
    """A block of shared memory. Make one with :meth:`create`, or use the parent's (:func:`inherited`)."""

    def __init__(self, memory: mmap.mmap, file: int = -1) -> None:
        self.file = file
        self._memory = memory
        self._numbers = memoryview(memory)[:_TEXT].cast("q")

    @classmethod
    def create(cls) -> Blackbox:
        """Create a box, backed by an unnamed file so that its descriptor can be passed to a child."""
        if sys.platform == "linux":
            descriptor = os.memfd_create("uttu")
        else:
            import tempfile

            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, SIZE)
        return cls(mmap.mmap(descriptor, SIZE), descriptor)

    def close(self) -> None:
        self._numbers.release()
        self._memory.close()
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def clear(self) -> None:
        """Set everything to 0, for the next process."""
        self._memory[:] = bytes(SIZE)

    # Written by the worker process.

    def attach(self) -> None:
        self._numbers[_STATE] = _ATTACHED

    def enter(self, lease: int, fingerprint: int, url: str, handler: str) -> None:
        """Record that a step of a handler begins."""
        text = f"{url}\0{handler}".encode() if handler else url.encode()
        if len(text) > _MOST_TEXT:
            text = text[:_MOST_TEXT]
        self._memory[_TEXT : _TEXT + len(text)] = text
        numbers = self._numbers
        numbers[_FINGERPRINT] = fingerprint
        numbers[_LENGTH] = len(text)
        numbers[_LEASE] = lease

    def leave(self) -> None:
        """Record that no handler is running."""
        self._numbers[_LEASE] = 0

    def announce(self, code: int) -> None:
        """Record the exit code of a process that is about to end regularly."""
        self._numbers[_CODE] = code
        self._numbers[_STATE] |= _ATTACHED | _ENDED

    def note_harm(self) -> None:
        """Record that the process fails because a handler damaged it (:func:`is_harmed`)."""
        self._numbers[_STATE] |= _HARMED

    def beat(self, count: int) -> None:
        self._numbers[_BEATS] = count

    def set_limits(self, grace: float, patience: float) -> None:
        self._numbers[_GRACE] = round(grace * 1000)
        self._numbers[_PATIENCE] = round(patience * 1000)

    def set_halted(self, halted: bool) -> None:
        self._numbers[_HALTED] = halted

    # Written by the parent, read by the worker process.

    def set_wary(self) -> None:
        """Make the next process check after each handler whether it was damaged."""
        self._numbers[_WARY] = 1

    @property
    def wary(self) -> bool:
        return bool(self._numbers[_WARY])

    def forward(self) -> None:
        """Count a signal that the parent is about to forward."""
        self._numbers[_FORWARDED] += 1

    @property
    def forwarded(self) -> int:
        return self._numbers[_FORWARDED]

    # Read by the parent.

    @property
    def attached(self) -> bool:
        return bool(self._numbers[_STATE] & _ATTACHED)

    @property
    def announced(self) -> int | None:
        """The exit code that the process announced; None if it announced none."""
        return self._numbers[_CODE] if self._numbers[_STATE] & _ENDED else None

    @property
    def harmed(self) -> bool:
        return bool(self._numbers[_STATE] & _HARMED)

    @property
    def beats(self) -> int:
        return self._numbers[_BEATS]

    @property
    def grace(self) -> float:
        return self._numbers[_GRACE] / 1000

    @property
    def patience(self) -> float:
        return self._numbers[_PATIENCE] / 1000

    @property
    def halted(self) -> bool:
        return bool(self._numbers[_HALTED])

    @property
    def handled(self) -> HandledPage | None:
        """The page whose handler is running, or was running when the process died; None without one."""
        lease, fingerprint, length = self._numbers[_LEASE], self._numbers[_FINGERPRINT], self._numbers[_LENGTH]
        if not lease:
            return None
        url, _, handler = self._memory[_TEXT : _TEXT + length].decode("utf-8", "replace").partition("\0")
        return HandledPage(lease, fingerprint, url, handler)


_inherited: Blackbox | None = None
# The stat of the inherited box's file and the file size limit, both at the start of the process; see is_harmed().
_file: tuple[int, ...] = ()
_most = (0, 0)
guardian = 0
"""The pid of the guardian process that forked this one; 0 without a guardian. See :mod:`uttu.runtime.guardian`."""


def is_harmed() -> bool:
    """Whether a handler damaged this process: the box's file was closed, or the file size limit changed."""
    if _inherited is None:
        return False
    try:
        return os.fstat(_inherited.file)[:3] != _file or resource.getrlimit(resource.RLIMIT_FSIZE) != _most
    except OSError:
        return True


def started_pid() -> int:
    """The pid of the process that the user started: this one or its guardian. Stopping or killing it ends both."""
    return guardian or os.getpid()


def inherited() -> Blackbox | None:
    """The box that this process got from its parent; None if no parent watches it."""
    global _inherited
    descriptor = os.environ.pop(VARIABLE, "")
    if _inherited is None and descriptor:
        # Programs that a handler starts must not inherit the descriptor.
        os.set_inheritable(int(descriptor), False)
        inherit(Blackbox(mmap.mmap(int(descriptor), SIZE), int(descriptor)))
    return _inherited


def inherit(box: Blackbox) -> None:
    """Make this process write to ``box`` from now on."""
    global _inherited, _file, _most
    box.attach()
    _inherited = box
    _file = os.fstat(box.file)[:3]
    _most = resource.getrlimit(resource.RLIMIT_FSIZE)
