"""Beats that are killed: two run, the one that leads is killed with -9 at a random moment, again and again.

Every third time it is first stopped until the other leads, and let go: it must not do what it was about to.

``python -m tests.harness.nemesis.beats --rounds 20 --broker redis``. A schedule is due every second. What workers have
noted is the truth: each time that was due ran, whoever led then; and none ran twice.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from tests.harness.servers import RabbitServer, RedisServer
from uttu.testing.waiting import wait_until

_TASKS = """
import time

from uttu.jobs import app


@app.task(bind=True)
def noted(self):
    fire = self.request.headers["uttu-fire"]
    with open("ran", "a") as file:
        file.write(f"{fire['due']} {self.request.id} {time.time()}\\n")
"""
_EVERY = timedelta(seconds=1)
_LEADS, _FOLLOWS = "This beat leads", "Another beat leads"


class Ran(msgspec.Struct, frozen=True):
    """A line of a worker: for which time, under which id, when."""

    due: datetime
    id: str
    at: float

    @property
    def late(self) -> float:
        return self.at - self.due.timestamp()


class Result(msgspec.Struct, frozen=True):
    """How it went. ``findings`` are what must not be."""

    rounds: int
    fires: int
    latest: float
    """By how many seconds the latest fire ran late: what taking over took."""
    again: int
    """How often a message was turned away because its fire had run or was running."""
    findings: tuple[str, ...]

    def __str__(self) -> str:
        clean = "clean" if not self.findings else "; ".join(self.findings)
        return (
            f"{self.rounds} leaders killed, {self.fires} fires, the latest {self.latest:.1f} s late, "
            f"{self.again} sent twice and run once: {clean}"
        )


def check(ran: list[Ran]) -> tuple[str, ...]:
    """What is wrong: a time that ran twice, or none at all."""
    found = []
    dues = [each.due for each in ran]
    twice = sorted({str(due) for due in dues if dues.count(due) > 1})
    if twice:
        found.append(f"ran twice: {', '.join(twice)}")
    due, last = min(dues), max(dues)
    while due < last:
        if due not in dues:
            found.append(f"did not run: {due}")
        due += _EVERY
    return tuple(found)


class Beats:
    """A folder with a worker and two beats."""

    def __init__(self, folder: Path, broker: str) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        name = f"nemesis-{random.randrange(1 << 40):x}"
        (folder / "tasks.py").write_text(_TASKS)
        (folder / "uttu.toml").write_text(
            f'[jobs]\nbroker = "{broker}"\ninclude = ["tasks.py"]\nname = "{name}"\nqueue = "{name}"\n'
            '[jobs.schedule.second]\ntask = "tasks.noted"\nevery = 1\n'
        )
        self.worker = self._start("worker", "-c", "2")
        self.beats = [self._start("beat"), self._start("beat")]

    def _start(self, *words: str) -> int:
        """The number of the process."""
        with self._log(len(self._processes)).open("wb") as log:
            command = [sys.executable, "-m", "uttu", "jobs", *words, "-l", "INFO"]
            pid = ["--pidfile", ""] if words[0] == "beat" else []
            self._processes.append(
                subprocess.Popen([*command, *pid], cwd=self._folder, stdout=log, stderr=subprocess.STDOUT)
            )
        return len(self._processes) - 1

    def _log(self, number: int) -> Path:
        return self._folder / f"log{number}"

    def leaders(self) -> list[int]:
        """Which of the beats lead, by what they say."""
        texts = {number: self._log(number).read_text() for number in self.beats}
        return [number for number, text in texts.items() if text.rfind(_LEADS) > text.rfind(_FOLLOWS)]

    def stop(self, number: int) -> None:
        """Stop a beat until another leads, then let it go on."""
        self._processes[number].send_signal(signal.SIGSTOP)
        try:
            self.wait_until(lambda: len(self.leaders()) == 2, "another beat leads")
        finally:
            self._processes[number].send_signal(signal.SIGCONT)
        self.wait_until(lambda: len(self.leaders()) == 1, "the beat that was stopped sees that")

    def kill(self, number: int) -> None:
        """Kill a beat, and start another."""
        self._processes[number].kill()
        self._processes[number].wait()
        self.beats.remove(number)
        self.beats.append(self._start("beat"))

    def ran(self) -> list[Ran]:
        file = self._folder / "ran"
        lines = file.read_text().splitlines() if file.exists() else []
        return [Ran(datetime.fromisoformat(due), task, float(at)) for due, task, at in map(str.split, lines)]

    def runs(self, times: int) -> None:
        """Wait until it has run so many times more, and one beat leads."""
        before = len(self.ran())
        self.wait_until(
            lambda: len(self.ran()) >= before + times and len(self.leaders()) == 1, "the schedule runs, and one leads"
        )

    def turned_away(self) -> int:
        return self._log(self.worker).read_text().count("it has run before")

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """As the function, with what beats and workers said."""
        wait_until(condition, what, said=self._logs)

    def _logs(self) -> str:
        return "\n".join(f"--- {each}\n{self._log(each).read_text()[-3000:]}" for each in (*self.beats, self.worker))

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


def run(folder: Path, broker: str, rounds: int, seed: int = 0) -> Result:
    """Kill so many leaders."""
    chance = random.Random(seed)
    beats = Beats(folder, broker)
    try:
        for number in range(1, rounds + 1):
            # A beat that was just started would make taking over look slow.
            beats.runs(3)
            time.sleep(chance.uniform(0, 1.5))
            if number % 3 == 0:
                beats.stop(*beats.leaders())
                beats.runs(2)
            beats.kill(*beats.leaders())
            beats.wait_until(lambda: len(beats.leaders()) == 1, "another beat leads")
        beats.runs(3)
    finally:
        beats.close()
    ran = beats.ran()
    return Result(rounds, len(ran), max(each.late for each in ran), beats.turned_away(), check(ran))


@contextlib.contextmanager
def server(kind: str) -> Iterator[str]:
    """A broker of its own."""
    made: RedisServer | RabbitServer = RabbitServer() if kind == "rabbitmq" else RedisServer()
    with made as running:
        yield running.url


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.nemesis.beats", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="how many leaders are killed (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="for the moments at which they are (%(default)s)")
    parser.add_argument("--broker", choices=["redis", "rabbitmq"], default="redis", help="(%(default)s)")
    given = parser.parse_args()
    with server(given.broker) as url, tempfile.TemporaryDirectory() as folder:
        result = run(Path(folder), url, given.rounds, given.seed)
    print(f"{given.broker}: {result}")
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
