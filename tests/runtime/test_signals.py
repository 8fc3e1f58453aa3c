"""Signals of a process with a guardian. Whole crawls: tests/crawl/test_handlers_signals.py."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from uttu import blackbox
from uttu.blackbox import Blackbox
from uttu.engine import watchdog
from uttu.runtime.signals import Signals


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[Blackbox]:
    """The black box of a process that has a guardian."""
    box = Blackbox.create()
    monkeypatch.setattr(blackbox, "inherited", lambda: box)
    monkeypatch.setattr(blackbox, "guardian", os.getppid())
    yield box
    box.close()


async def test_a_signal_that_arrives_twice_at_once_counts_once(box: Blackbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal sends Ctrl-C to the guardian, which forwards it, and to the child, which is handling it already."""
    heard: list[str] = []
    signals = Signals()
    signals.install(lambda: heard.append("drain"), lambda: heard.append("stop"))
    try:
        monkeypatch.setattr(watchdog, "notify_stop", lambda: None if heard else _send_once(monkeypatch))
        box.forward()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(1.0)
        assert heard == ["drain"]
        box.forward()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.1)
        assert heard == ["drain", "stop"]
    finally:
        signals.deaf()


def _send_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send the signal again, while its handler runs."""
    monkeypatch.setattr(watchdog, "notify_stop", lambda: None)
    os.kill(os.getpid(), signal.SIGINT)
