"""Jobs that were called off, by ``revoke``.

A worker's main process knows which, the processes of its pool do not. So one that has a crawl in hand asks, every two
seconds; and when a slice is dropped that nobody had begun, the main process sees to it that its crawl stops.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from billiard.process import current_process
from celery.signals import task_revoked
from celery.worker import state
from celery.worker.control import Panel

from weft.jobs.slices import process
from weft.jobs.slices.order import Order
from weft.jobs.slices.reins import REVOKED
from weft.jobs.task import Task

__all__ = ["REVOKED", "is_revoked", "stop_crawls"]

_ASK: Final = "weft_is_revoked"
_ASK_SECONDS: Final = 1.0


@Panel.register(type="inspect", name=_ASK)
def _answer(_: Any, task_id: str) -> dict[str, bool]:
    return {REVOKED: task_id in state.revoked}


def is_revoked(task: Task) -> bool:
    """Whether the task in hand was called off, as far as its worker knows."""
    if task.request.id in state.revoked:
        return True
    if current_process().name == "MainProcess":
        return False  # the worker is this very process
    answers: list[dict[str, dict[str, bool]]] | None = None
    # A broker that is away will be asked again.
    with contextlib.suppress(Exception):
        answers = task.app.control.broadcast(
            _ASK, arguments={"task_id": task.request.id}, destination=[task.request.hostname], reply=True,
            timeout=_ASK_SECONDS, limit=1,
        )  # fmt: skip
    return any(answer.get(REVOKED, False) for each in answers or () for answer in each.values())


def stop_crawls(name: str, order_of: Callable[[Any], Order]) -> None:
    """From now on, let crawls of tasks called ``name`` stop where a slice was dropped. ``order_of`` reads a request."""

    def stop(sender: Any = None, request: Any = None, **_: Any) -> None:
        if sender is not None and sender.name == name and request is not None:
            order = order_of(request)
            threading.Thread(target=_stop, args=(sender, order), daemon=True).start()

    task_revoked.connect(stop, weak=False)


def _stop(task: Task, order: Order) -> None:
    folder = Path(getattr(task.app, "folder", "."))
    with contextlib.suppress(process.SliceDied):
        process.run(msgspec.structs.replace(order, kind="stop"), folder, lambda word: None, lambda: False)
