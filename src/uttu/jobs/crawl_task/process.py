"""The process of a slice, from the side of the task that started it.

The task is the parent that watches the process: see :mod:`uttu.engine.worker_processes`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import msgspec
from celery.exceptions import SoftTimeLimitExceeded

from uttu.blackbox import VARIABLE, Blackbox, HandledPage
from uttu.engine.worker_processes import Pulse
from uttu.jobs.crawl_task.protocol import HAND_ON_LINE, STOP_LINE, SliceEvent, SliceRequest

# -P: modules in the current folder must not shadow Python's or ours.
COMMAND: Final = (sys.executable, "-P", "-m", "uttu.jobs.crawl_task.runner")
_POLL_SECONDS: Final = 2.0
_CHUNK_BYTES: Final = 1 << 16
_log = logging.getLogger("uttu.jobs")


class SliceDied(Exception):
    """The process ended without a last event.

    :param code: the return code as in :mod:`subprocess`.
    :param page: the page whose handler was running.
    :param stuck: seconds for which a handler had blocked the process, if it was killed for that.
    """

    def __init__(self, code: int, page: HandledPage | None = None, stuck: float = 0.0) -> None:
        super().__init__(f"by signal {-code}" if code < 0 else f"with exit code {code}")
        self.code = code
        self.page = page
        self.stuck = stuck


def run_process(
    request: SliceRequest,
    folder: Path,
    on_event: Callable[[SliceEvent], None],
    is_revoked: Callable[[], bool],
    *,
    wary: bool = False,
) -> SliceEvent:
    """Run a slice to its end; return its last event. Other events go to ``on_event``.

    The process outlives this one only to finish requests in flight. A soft time limit makes it hand on.

    :param wary: the process checks after each handler whether the handler has harmed it.
    :raises SliceDied: the process was killed, or ended by the spider.
    """
    box = Blackbox.create()
    if wary:
        box.set_wary()
    try:
        return _run(request, folder, box, on_event, is_revoked)
    finally:
        box.close()


def _run(
    request: SliceRequest,
    folder: Path,
    box: Blackbox,
    on_event: Callable[[SliceEvent], None],
    is_revoked: Callable[[], bool],
) -> SliceEvent:
    process = start_process(request, folder, box)
    assert process.stdin
    pulse = Pulse(box, process.pid, _POLL_SECONDS)
    try:
        with contextlib.closing(_read_events(process, pulse, is_revoked)) as events:
            for event in events:
                if event.end is not None:
                    process.wait()
                    _log.info("Process %d of %s has ended: %s", process.pid, request.file, event.end.value)
                    return event
                on_event(event)
        raise SliceDied(process.wait(), box.handled, pulse.stuck)
    finally:
        # If the process still runs, it learns from the closed pipe that the task is gone.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        if process.stdout:
            process.stdout.close()


def start_process(request: SliceRequest, folder: Path, box: Blackbox) -> subprocess.Popen[bytes]:
    """Start the process and send its request. It records the page of the running handler in ``box``."""
    process = subprocess.Popen(
        COMMAND,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
        env=os.environ | {VARIABLE: str(box.file)},
        pass_fds=(box.file,),
    )
    _log.info("Process %d runs slice %d of %s", process.pid, request.number, request.file)
    _write_line(process, msgspec.json.encode(request).decode())
    return process


def _read_events(
    process: subprocess.Popen[bytes], pulse: Pulse, is_revoked: Callable[[], bool]
) -> Generator[SliceEvent]:
    assert process.stdout
    decode = msgspec.json.Decoder(SliceEvent).decode
    rest = b""
    was_revoked = False
    asked = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            try:
                # Poll before reading the pipe: the last event may come in between.
                has_ended = process.poll() is not None
                ready = selector.select(0 if has_ended else _POLL_SECONDS)
                pulse.look()
                if process.poll() is None:
                    pulse.urge()
                if not was_revoked and time.monotonic() - asked > _POLL_SECONDS:
                    asked = time.monotonic()
                    was_revoked = is_revoked()
                    if was_revoked:
                        _write_line(process, STOP_LINE)
            except SoftTimeLimitExceeded:
                _write_line(process, HAND_ON_LINE)
                continue
            if ready:
                chunk = os.read(process.stdout.fileno(), _CHUNK_BYTES)
                if not chunk:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                yield from map(decode, lines)
            elif has_ended:
                return  # a program that a handler started keeps the pipe open


def _write_line(process: subprocess.Popen[bytes], line: str) -> None:
    """Write a line. If the process is gone, the reader of its events notices."""
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line.encode() + b"\n")
