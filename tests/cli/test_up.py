"""``uttu up`` and ``uttu down``: all that jobs need, started, kept running and ended."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil
import pytest

from tests.cli.conftest import Uttu
from tests.harness.servers.ports import Port
from uttu.jobs.embedded import Embedded
from uttu.testing.site import Site, SiteProcess
from uttu.testing.waiting import wait_until

_PATIENCE = 60.0
TASKS = """
import time
from pathlib import Path
from uttu.jobs import app

@app.task
def add(a, b):
    return a + b

@app.task
def write(file, seconds):
    Path("begun").touch()
    time.sleep(seconds)
    Path(file).touch()
"""
TOML = """
[jobs]
include = ["tasks.py"]

[jobs.flower]
port = {port}
"""


class Up:
    """``uttu up`` in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uttu", "up", *words],
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
        )
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        children = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        self.process.kill()
        self.process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._reading.join()
        assert self.process.stderr
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until so many of its lines have the text."""
        wait_until(
            lambda: sum(text in line for line in self.lines) >= times,
            f"it says {text!r}",
            said=lambda: "\n".join(self.lines),
        )

    def child(self, word: str) -> psutil.Process:
        """The process that runs ``uttu jobs WORD``."""
        found = [child for child in psutil.Process(self.process.pid).children() if word in child.cmdline()]
        assert found, word
        return found[0]

    def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        code = self.process.wait(_PATIENCE)
        self._reading.join()
        return code


def uttu_in(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "uttu", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    port = Port()
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "uttu.toml").write_text(TOML.format(port=port.number))
    yield tmp_path
    port.release()
    Embedded(tmp_path).down()


def flower_says(folder: Path, path: str) -> dict[str, object]:
    port = int((folder / "uttu.toml").read_text().split("port = ")[1])
    password = (folder / ".uttu/jobs/flower-password").read_text().strip()
    login = base64.b64encode(f"uttu:{password}".encode()).decode()
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/api/{path}", headers={"Authorization": f"Basic {login}"})
    with urllib.request.urlopen(asked, timeout=_PATIENCE) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def test_all_that_jobs_need(folder: Path) -> None:
    with Up(folder, "--workers", "2", "-c", "1") as up:
        up.wait_for("ready.", times=2)
        up.wait_for("Visit me at")
        up.wait_for("beat: Starting")
        assert uttu_in(folder, "jobs", "call", "tasks.add", "-a", "[2, 3]", "--wait") == "5"
        # Flower asks the workers, and gives them a second to answer.
        up.wait_for("The dashboard is at http://127.0.0.1:")
        wait_until(lambda: len(flower_says(folder, "workers?refresh=1")) == 2, "Flower knows both workers")
        server = Embedded(folder)
        up.process.send_signal(signal.SIGINT)
        assert up.end() == 0
        wait_until(lambda: not server.is_running, "the server is gone")
    heads = {line.partition(" |")[0].rstrip() for line in up.lines}
    assert heads == {"up", "worker1", "worker2", "beat", "flower", "dashboard"}


def test_without_beat_and_flower(folder: Path) -> None:
    with Up(folder, "--no-beat", "--no-flower", "--no-dashboard", "-c", "1") as up:
        up.wait_for("worker@")
        up.wait_for("ready.")
        up.process.terminate()
        assert up.end() == 0
    assert {line.partition(" |")[0].rstrip() for line in up.lines} == {"up", "worker"}


def test_jobs_are_finished_first(folder: Path) -> None:
    with Up(folder, "--no-beat", "--no-flower", "--no-dashboard", "-c", "1") as up:
        up.wait_for("ready.")
        uttu_in(folder, "jobs", "call", "tasks.write", "-a", '["done", 2]')
        wait_until((folder / "begun").exists, "the job begins")
        up.process.send_signal(signal.SIGINT)
        assert up.end() == 0
        assert (folder / "done").exists()


def test_once_more_stops_at_once(folder: Path) -> None:
    with Up(folder, "--no-beat", "--no-flower", "--no-dashboard", "-c", "1") as up:
        up.wait_for("ready.")
        uttu_in(folder, "jobs", "call", "tasks.write", "-a", '["done", 600]')
        wait_until((folder / "begun").exists, "the job begins")
        worker = up.child("worker")
        everyone = [worker, *worker.children(recursive=True)]
        assert len(everyone) > 1
        up.process.send_signal(signal.SIGINT)
        up.wait_for("ending:")
        up.process.send_signal(signal.SIGINT)
        assert up.end() == 130
        psutil.wait_procs(everyone, _PATIENCE)
        assert not any(process.is_running() for process in everyone)


def test_one_that_dies_is_started_again(folder: Path) -> None:
    with Up(folder, "--no-flower", "--no-dashboard", "-c", "1") as up:
        up.wait_for("ready.")
        up.child("worker").kill()
        up.wait_for("worker was killed by signal 9; it is started again")
        up.wait_for("ready.", times=2)
        assert uttu_in(folder, "jobs", "call", "tasks.add", "-a", "[2, 3]", "--wait") == "5"


def test_schedules_are_kept(folder: Path) -> None:
    with Up(folder, "--no-flower", "--no-dashboard", "-c", "1") as up:
        up.wait_for("ready.")
        uttu_in(folder, "schedule", "add", "often", "--task", "tasks.write", "--every", "1", "--args", '["done", 0]')
        wait_until((folder / "done").exists, "the schedule's job is done", said=lambda: "\n".join(up.lines))


def test_the_server_killed_comes_back(folder: Path) -> None:
    with Up(folder, "--no-flower", "--no-dashboard", "-c", "1") as up:
        up.wait_for("ready.")
        pid = int(Embedded(folder).place.pid.read_text())
        os.kill(pid, signal.SIGKILL)
        assert uttu_in(folder, "jobs", "call", "tasks.add", "-a", "[2, 3]", "--wait") == "5"
        assert int(Embedded(folder).place.pid.read_text()) != pid
        assert up.process.poll() is None


def test_one_that_dies_again_and_again_ends_it(folder: Path) -> None:
    (folder / "tasks.py").write_text("import os\nos._exit(7)\n")
    with Up(folder, "--no-flower", "--no-dashboard", "--no-beat", "-c", "1") as up:
        assert up.end() == 1
    assert up.lines[-1] == "uttu: worker ended with exit code 7, 5 times in a row; its message is above\n"


def test_what_can_not_get_better_is_not_tried_again(folder: Path) -> None:
    (folder / "tasks.py").unlink()
    with Up(folder, "--no-flower", "--no-dashboard", "--no-beat") as up:
        assert up.end() == 1
    assert sum("ended with exit code 3" in line for line in up.lines) == 2  # as it happens, and as the reason
    assert not any("started again" in line for line in up.lines)


def test_killed_it_takes_all_along(folder: Path) -> None:
    with Up(folder, "-c", "1") as up:
        up.wait_for("ready.")
        up.wait_for("Visit me at")
        up.wait_for("beat: Starting")
        everyone = psutil.Process(up.process.pid).children(recursive=True)
        up.process.kill()
        psutil.wait_procs(everyone, _PATIENCE)
        assert [process for process in everyone if process.is_running()] == []
        wait_until(lambda: not Embedded(folder).is_running, "the server is gone")


def test_a_configured_broker_is_used(folder: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTTU_JOBS_BROKER", redis_url)
    monkeypatch.setenv("UTTU_JOBS_QUEUE", folder.name)
    with Up(folder, "--no-beat", "--no-flower", "--no-dashboard", "-c", "1") as up:
        up.wait_for("the broker is redis://")
        up.wait_for("ready.")
        assert uttu_in(folder, "jobs", "call", "tasks.add", "-a", "[2, 3]", "--wait") == "5"
        assert not Embedded(folder).is_running


def test_down_ends_up(folder: Path) -> None:
    with Up(folder, "-c", "1") as up:
        up.wait_for("ready.")
        told = uttu_in(folder, "down")
        assert told.startswith(f"stopped the server in {folder}/.uttu/jobs; ")
        assert up.end() == 0
        up.wait_for("stopped by uttu down")
        assert not Embedded(folder).is_running
    assert not any("Traceback" in line or "Error" in line for line in up.lines), up.lines


def test_down_does_not_wait_long_for_a_job(folder: Path) -> None:
    with Up(folder, "--no-beat", "--no-flower", "--no-dashboard", "-c", "1") as up:
        up.wait_for("ready.")
        uttu_in(folder, "jobs", "call", "tasks.write", "-a", '["done", 600]')
        wait_until((folder / "begun").exists, "the job begins")
        uttu_in(folder, "down")
        assert up.end() == 0
    assert not any("Traceback" in line for line in up.lines), up.lines


def test_a_port_that_is_taken(folder: Path) -> None:
    (folder / "uttu.toml").write_text('[jobs]\ninclude = ["tasks.py"]\n')
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # another program has it
            stack.enter_context(socket.create_server(("127.0.0.1", 5555)))
        up = stack.enter_context(Up(folder, "-c", "1"))
        up.wait_for("Port 5555 is in use. Flower is at http://127.0.0.1:")
        up.wait_for("Visit me at")
        up.wait_for("ready.")
        up.process.terminate()
        assert up.end() == 0
    assert not any("Traceback" in line for line in up.lines), up.lines


def test_a_port_that_was_asked_for_and_is_taken(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (folder / "uttu.toml").write_text(TOML.format(port=port))
        with Up(folder, "-c", "1") as up:
            up.wait_for(f"Flower cannot listen: port {port} is in use")
            up.wait_for("The others go on without it")
            up.wait_for("ready.")
            up.process.terminate()
            assert up.end() == 0
    assert not any("Traceback" in line for line in up.lines), up.lines


def test_a_broker_that_is_away_is_said_once(uttu: Uttu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTTU_JOBS_BROKER", "redis://127.0.0.1:9/0")
    told = uttu("up")
    assert told.code == 4
    assert told.err.count("can't be reached") == 1


def test_down_with_nothing_to_stop(uttu: Uttu, monkeypatch: pytest.MonkeyPatch) -> None:
    told = uttu("down")
    assert (told.code, told.out) == (0, "nothing to stop: the server of this folder is not running\n")
    assert list(Path().iterdir()) == []
    monkeypatch.setenv("UTTU_JOBS_BROKER", "redis://:secret@queue.example:6379/0")
    told = uttu("down")
    assert told.code == 0
    assert told.out == "nothing to stop: the broker redis://:***@queue.example:6379/0 is not Uttu's\n"


def test_nothing_to_run(uttu: Uttu) -> None:
    told = uttu("up", "--workers", "0", "--no-beat", "--no-flower", "--no-dashboard")
    assert told.code == 2
    assert "Nothing to run" in told.err


def test_one_log_for_all_processes_and_the_crawls_they_run(folder: Path) -> None:
    with SiteProcess(Site(pages=5)) as site:
        (folder / "pages.py").write_text(
            "from uttu import Spider\n"
            f"spider = Spider('pages', start='{site.url}p/0', private=True, robots=False, delay=0)\n"
            "@spider.page\ndef page(page):\n    page.log.info('seen')\n    yield page.follow_all('a')\n"
        )
        options = ("--log-level", "debug", "--log-file", "all.log", "--log-format", "json")
        with Up(folder, "--no-flower", "--no-dashboard", "-c", "1", *options) as up:
            up.wait_for("ready.")
            uttu_in(folder, "jobs", "call", "uttu.crawl", "-a", '["pages.py"]', "--wait")
            up.process.send_signal(signal.SIGINT)
            assert up.end() == 0
    logged = [json.loads(line) for line in (folder / "all.log").read_text().splitlines()]
    by_logger: dict[str, list[dict[str, str]]] = {}
    for row in logged:
        by_logger.setdefault(row["logger"], []).append(row)
    assert {row["message"] for row in by_logger["uttu.page"] if row["level"] == "debug"}
    assert len(by_logger["uttu.page"]) == 5
    assert len(by_logger["uttu.spider.pages"]) == 5
    assert "uttu.jobs.beat" in by_logger
    assert any("runs slice 1 of pages.py" in row["message"] for row in by_logger["uttu.jobs"])
    assert any(row["message"].startswith("worker has started") for row in by_logger["uttu.jobs"])
