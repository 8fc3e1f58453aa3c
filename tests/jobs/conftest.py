"""Folders with workers: real ones, as processes, on the broker that a test is about.

A folder serves all tests of a module. Its queues and its name are its own, so that folders may share a broker.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any

import kombu.pools
import pytest
from celery.canvas import Signature
from kombu import pools

from uttu.jobs import App
from uttu.jobs import settings as job_settings
from uttu.testing.waiting import wait_until

TASKS = Path(__file__).with_name("sample_tasks.py")
PATIENCE = 30.0


class Workshop:
    """A folder with ``uttu.toml`` and ``tasks.py``, the app of it, and its processes."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.name = f"t{uuid.uuid4().hex[:10]}"
        copyfile(TASKS, folder / "tasks.py")
        self.configure(**settings)
        self._processes: list[subprocess.Popen[bytes]] = []

    def configure(self, **settings: Any) -> None:
        """Write ``uttu.toml``, and make the app anew."""
        table = {"include": ["tasks.py"], "name": self.name, "queue": self.name, **settings}
        (self.folder / "uttu.toml").write_text("[jobs]\n" + "".join(f"{k} = {_toml(v)}\n" for k, v in table.items()))
        self.app = App(job_settings.load_job_settings(self.folder, {}), self.folder, set_as_current=False)

    def task(self, name: str, *args: Any, **kwargs: Any) -> Signature:
        """A task of ``tasks.py``, with its arguments."""
        found: Signature = self.app.signature(f"tasks.{name}", args, kwargs)
        return found

    def run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """What a task returns."""
        return self.get(self.task(name, *args, **kwargs).apply_async())

    def get(self, result: Any) -> Any:
        return result.get(timeout=PATIENCE)

    def uttu(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command in the folder, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "uttu", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env=_environment(environment),
        )

    def start(self, *words: str, until: str = "", **environment: str) -> subprocess.Popen[bytes]:
        """A command in the folder, until the workshop is closed; ``until`` is waited for in its output."""
        log = self.folder / f"log{len(self._processes)}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "uttu", *words],
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_environment(environment),
            )
        self._processes.append(process)
        wait_until(lambda: process.poll() is not None or until in log.read_text(), f"{words} says {until!r}")
        assert process.poll() is None, log.read_text()
        return process

    def worker(self, *words: str) -> subprocess.Popen[bytes]:
        """A worker that is ready."""
        name = f"w{len(self._processes)}-{self.name}@here"
        return self.start("jobs", "worker", "-l", "INFO", "-n", name, *words, until=" ready.")

    def log(self, number: int = 0) -> str:
        return (self.folder / f"log{number}").read_text()

    def notes(self) -> list[str]:
        """What tasks have noted so far."""
        file = self.folder / "notes"
        return file.read_text().splitlines() if file.exists() else []

    def until_noted(self, word: str) -> None:
        wait_until(lambda: word in self.notes(), f"a task notes {word!r}")

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        close_app(self.app)


def close_app(app: App) -> None:
    """Close an app and its connections for results.

    Celery leaves them to the garbage collector, which may find a socket before the connection that would close it: a
    warning, and a failure of whatever test is running then.
    """
    # The broker may be gone.
    with contextlib.suppress(OSError):
        if backend := getattr(app._local, "backend", None):
            if consumer := getattr(backend, "result_consumer", None):
                consumer.stop()
            if "client" in backend.__dict__:
                backend.client.connection_pool.disconnect()
    app.close()
    # What is left all the same is found here, and not within another test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def close_alone(app: App) -> None:
    """Close the only app there is, and with it the connections to brokers, which all apps share."""
    close_app(app)
    with contextlib.suppress(OSError):
        pools.reset()


def _environment(more: dict[str, str]) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("UTTU_", "CELERY_", "FLOWER_"))}
    return inherited | more


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


MakeWorkshop = Callable[..., Any]


@pytest.fixture(scope="session", autouse=True)
def _connections() -> Iterator[None]:
    """Kombu keeps its connections in pools by their URLs, for all apps of a process."""
    yield
    kombu.pools.reset()


@pytest.fixture(scope="module")
def workshops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeWorkshop]:
    """Makes workshops; their processes end with the module."""
    made: list[Workshop] = []

    def make(**settings: Any) -> Workshop:
        made.append(Workshop(tmp_path_factory.mktemp("jobs"), **settings))
        return made[-1]

    yield make
    for workshop in made:
        workshop.close()


@pytest.fixture(scope="module", params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> str:
    """The URL of each broker in turn."""
    return str(request.getfixturevalue(f"{request.param}_url"))
