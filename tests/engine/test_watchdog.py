"""The watchdog interrupts a handler that blocks the loop, and nothing else. Whole crawls: tests/crawl."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from uttu.blackbox import Blackbox
from uttu.engine import watchdog as watchdogs
from uttu.engine.handler_steps import HandlerBlocked, HandlerRun, StepTracker
from uttu.engine.watchdog import Watchdog, notify_stop
from uttu.model import Lease, Request

LEASE = Lease(
    id=7,
    fingerprint=9,
    lane="example.org",
    request=Request(url="http://example.org/", handler="page"),
    attempt=1,
    wait=0,
    deadline=0,
)


def compute() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(30)


def sleep_a_while() -> None:
    time.sleep(1.5)


@pytest.mark.parametrize("block", [compute, sleep])
async def test_a_step_that_takes_too_long(block: Callable[[], None]) -> None:
    steps = StepTracker()
    began = time.monotonic()
    with (
        Watchdog(steps, 0.5).watching(),
        pytest.raises(
            HandlerBlocked, match=rf"blocked the worker for \d+ s at test_watchdog.py:\d+ in {block.__name__}"
        ),
        HandlerRun(steps, LEASE, 0),
    ):
        block()
    assert time.monotonic() - began < 20
    await asyncio.sleep(0)


async def test_what_is_no_step_goes_on() -> None:
    """The engine's own work is never interrupted, however long it takes."""
    box = Blackbox.create()
    ended = asyncio.Event()

    def work() -> None:
        _engine(1.5)
        ended.set()

    with Watchdog(StepTracker(box), 0.3, box).watching():
        asyncio.get_running_loop().call_soon(_called, work)
        await asyncio.wait_for(ended.wait(), 10)
    box.close()


# Their frames look like the engine's.
_file = os.path.join(watchdogs._OURS, "engine", "x.py")
_engine: Any = eval(compile("lambda seconds: __import__('time').sleep(seconds)", _file, "eval"))
_called: Any = eval(compile("lambda work: work()", _file, "eval"))


async def test_when_the_process_is_to_end_the_page_is_not_to_blame() -> None:
    steps = StepTracker()
    with Watchdog(steps, 60).watching():
        threading.Timer(0.2, notify_stop).start()
        with pytest.raises(HandlerBlocked) as raised, HandlerRun(steps, LEASE, 0):
            compute()
    assert raised.value.stopping


async def test_a_process_that_was_stopped_is_not_late() -> None:
    """Another process stops this one for a while, in the middle of a step."""
    steps = StepTracker()
    pid = os.getpid()
    child = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", f"sleep 0.3; kill -STOP {pid}; sleep 4; kill -CONT {pid}"
    )
    with Watchdog(steps, 3).watching():
        with HandlerRun(steps, LEASE, 0):
            _engine(1.5)
        assert await child.wait() == 0


async def test_it_warns_first(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdogs, "WARN_SECONDS", 0.5)
    steps = StepTracker()
    with caplog.at_level(logging.WARNING, "uttu.watchdog"), Watchdog(steps, 60).watching(), HandlerRun(steps, LEASE, 0):
        sleep_a_while()
    assert [record.getMessage().partition(" for ")[0] for record in caplog.records] == [
        "The handler 'page' of http://example.org/ has blocked the worker"
    ]
    assert "test_watchdog.py" in caplog.text


async def test_signals_are_as_they_were() -> None:
    with Watchdog(StepTracker(), 1).watching():
        assert signal.getsignal(signal.SIGVTALRM) != signal.SIG_DFL
    assert signal.getsignal(signal.SIGVTALRM) == signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


async def test_the_black_box() -> None:
    box = Blackbox.create()
    steps = StepTracker(box)
    assert box.handled is None
    with HandlerRun(steps, LEASE, 0):
        found = box.handled
        assert found is not None
        assert (found.lease, found.fingerprint, found.url, found.handler) == (7, 9, "http://example.org/", "page")
    assert box.handled is None
    assert box.announced is None
    box.announce(3)
    assert box.announced == 3
    with Watchdog(steps, 1, box).watching():
        first = box.beats
        await asyncio.sleep(0.6)
        assert box.beats > first > 0
    assert box.beats == 0
    box.close()


async def test_a_copy_of_the_process_ends_where_the_handler_does() -> None:
    steps = StepTracker()
    child = 0
    with HandlerRun(steps, LEASE, 0):
        child = os.fork()
    assert child, "the copy does not come here"
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
