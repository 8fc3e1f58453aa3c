"""The tasks of the tests, as a user would write them. It is put into a worker's folder as ``tasks.py``."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded

from uttu.jobs import Task, app


def note(word: str) -> None:
    """A line in the file ``notes``, whole even if several processes write."""
    with Path("notes").open("a") as file:
        file.write(word + "\n")


class Noted(Task):
    """Hooks that leave a trace."""

    abstract = True

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        note(f"before_start {task_id}")

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        note(f"on_success {task_id} {retval}")

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(f"on_failure {task_id} {exc}")

    def on_retry(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(f"on_retry {task_id} {exc}")

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(f"after_return {task_id} {status}")


@app.task
def add(first: int, second: int) -> int:
    return first + second


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
async def add_later(first: int, second: int) -> int:
    await asyncio.sleep(0)
    return first + second


@app.task
async def loop_and_process() -> list[int]:
    """Which event loop, and in which process."""
    return [id(asyncio.get_running_loop()), os.getpid()]


@app.task(bind=True)
async def count_up(self: Task, until: int, pause: str) -> int:
    """Says how far it is, and waits at the half for a file."""
    for number in range(1, until + 1):
        self.progress(number, until, word="half" if number * 2 == until else "")
        while number * 2 == until and not Path(pause).exists():  # noqa: ASYNC110, it is another process
            await asyncio.sleep(0.02)
    return until


@app.task(bind=True, base=Noted)
def noted(self: Task, value: str) -> str:
    self.logger.warning("noted says %s", value)
    if value == "bad":
        raise ValueError("bad value")
    return value.upper()


@app.task(bind=True, base=Noted, max_retries=2)
def stubborn(self: Task) -> int:
    """Succeeds the third time."""
    if self.request.retries < 2:
        raise self.retry(exc=ValueError(f"attempt {self.request.retries}"), countdown=0)
    return int(self.request.retries)


@app.task
def say(word: str) -> str:
    note(word)
    return word


@app.task
def wait_for(file: str) -> str:
    """Occupies a process until a file is there."""
    note(f"waiting {file}")
    while not Path(file).exists():
        time.sleep(0.02)
    return file


@app.task
async def wait_for_later(file: str) -> str:
    note(f"waiting {file}")
    while not Path(file).exists():  # noqa: ASYNC110, likewise
        await asyncio.sleep(0.02)
    return file


@app.task(bind=True)
def which_queue(self: Task) -> str:
    return str(self.request.delivery_info["routing_key"])


@app.task
def in_slow() -> str:
    return "slow"


@app.task(soft_time_limit=1)
def soft_limit() -> str:
    try:
        while True:
            time.sleep(0.05)
    except SoftTimeLimitExceeded:
        return "soft"


@app.task(bind=True, soft_time_limit=1)
async def soft_limit_later(self: Task) -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        note(f"cancelled {self.request.id}")
        raise


@app.task(time_limit=1)
def hard_limit() -> None:
    time.sleep(60)


@app.task
def process() -> int:
    return os.getpid()


@app.task
def swell() -> int:
    """Takes 80 MB and keeps them."""
    swell.kept = b"x" * 80_000_000
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@app.task(acks_late=True)
def die_once(file: str) -> str:
    """Kills its process the first time."""
    if not Path(file).exists():
        Path(file).touch()
        os.kill(os.getpid(), 9)
    return "survived"
