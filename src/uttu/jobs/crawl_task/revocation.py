"""Detect jobs that were cancelled with ``revoke``, and stop their crawls.

The main process of a worker knows which jobs are revoked; its pool processes do not. So a pool process that runs a
slice asks it every two seconds. If a revoked slice is dropped before it began, the main process stops the crawl.
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

from uttu.errors import UttuError
from uttu.jobs.crawl_task import process
from uttu.jobs.crawl_task.protocol import SliceRequest
from uttu.jobs.task import Task

_ASK: Final = "uttu_is_revoked"
_REVOKED: Final = "revoked"
_ASK_SECONDS: Final = 1.0


@Panel.register(type="inspect", name=_ASK)
def _answer(_: Any, task_id: str) -> dict[str, bool]:
    return {_REVOKED: task_id in state.revoked}


def is_revoked(task: Task) -> bool:
    """Whether the current task was revoked, as far as its worker knows."""
    if task.request.id in state.revoked:
        return True
    if current_process().name == "MainProcess":
        return False  # this is the worker's main process
    answers: list[dict[str, dict[str, bool]]] | None = None
    # If the broker is away, the next call asks again.
    with contextlib.suppress(Exception):
        answers = task.app.control.broadcast(
            _ASK,
            arguments={"task_id": task.request.id},
            destination=[task.request.hostname],
            reply=True,
            timeout=_ASK_SECONDS,
            limit=1,
        )
    return any(answer.get(_REVOKED, False) for each in answers or () for answer in each.values())


def stop_crawls(name: str, order_of: Callable[[Any, Any], SliceRequest]) -> None:
    """Stop the crawl of every task named ``name`` whose message is dropped because it was revoked.

    :param order_of: builds the slice request from an app and a Celery request.
    """

    def stop(sender: Any = None, request: Any = None, **_: Any) -> None:
        if sender is not None and sender.name == name and request is not None:
            try:
                order = order_of(sender.app, request)
            except UttuError:
                return  # the slice could not have begun
            threading.Thread(target=_stop, args=(sender, order), daemon=True).start()

    task_revoked.connect(stop, weak=False)


def _stop(task: Task, order: SliceRequest) -> None:
    folder = Path(getattr(task.app, "folder", "."))
    with contextlib.suppress(process.SliceDied):
        process.run_process(msgspec.structs.replace(order, kind="stop"), folder, lambda word: None, lambda: False)
