"""No-op tasks through the app of Uttu, and through a plain Celery app on the same broker.

    python -m bench.jobs [--tasks 4000] [--rounds 5] [--broker redis rabbitmq]

Each app has its own worker with two processes. A round sends tasks through each app and waits for all results; the
order of the apps rotates. ``plain`` is Celery with its defaults. ``alike`` has those settings of Uttu's app that do
work for each task (states, priorities, prefetch), so it shows what they cost without Uttu's code.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.common import compile_uttu, save, table
from tests.harness.servers import RabbitServer, RedisServer

_APPS = {
    "plain": "from celery import Celery\napp = Celery('plain', broker=BROKER, backend=BACKEND)\n",
    "alike": (
        "from celery import Celery\napp = Celery('alike', broker=BROKER, backend=BACKEND)\n"
        "app.conf.update(task_default_queue='alike', task_track_started=True, result_extended=True,"
        " worker_prefetch_multiplier=1)\n"
        "if BROKER.startswith('amqp'):\n"
        "    app.conf.update(task_queue_max_priority=9)\n"
        "else:\n"
        "    app.conf.update(worker_disable_prefetch=True)\n"
    ),
    "uttu": (
        "from uttu.jobs import App, JobSettings\n"
        "app = App(JobSettings(broker=BROKER, backend=BACKEND, name='bench', queue='bench'))\n"
    ),
}
_TASK = "@app.task\ndef nothing():\n    pass\n"
# Runs in a process for each app. Reads a number of tasks from each line, and prints the seconds.
_SENDER = """
import sys, time
from celery.result import ResultSet
from {app} import nothing
for line in sys.stdin:
    begin = time.perf_counter()
    sent = ResultSet([nothing.delay() for _ in range(int(line))])
    between = time.perf_counter()
    sent.join(timeout=300)
    sent.forget() if "rpc" not in str(sent.app.conf.result_backend) else None
    print(between - begin, time.perf_counter() - begin, flush=True)
"""


class Contestant:
    """An app with its worker and its sender."""

    def __init__(self, name: str, broker: str, backend: str, folder: Path, running: ExitStack) -> None:
        self.name = name
        module = f"bench_{name}"
        (folder / f"{module}.py").write_text(f"BROKER, BACKEND = {broker!r}, {backend!r}\n{_APPS[name]}{_TASK}")
        log = (folder / f"{name}.log").open("wb")
        # The workers import the same Uttu as this process.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
        worker = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "celery",
                "-A",
                module,
                "worker",
                "-c",
                "2",
                "-l",
                "INFO",
                "-n",
                f"{name}@bench",
                "--without-gossip",
                "--without-mingle",
            ],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        running.callback(worker.wait)
        running.callback(worker.terminate)
        while b" ready." not in (folder / f"{name}.log").read_bytes():
            if worker.poll() is not None:
                raise SystemExit((folder / f"{name}.log").read_text())
            time.sleep(0.05)
        self._sender = subprocess.Popen(
            [sys.executable, "-c", _SENDER.format(app=module)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        running.callback(self._sender.wait)
        running.callback(self._sender.terminate)

    def run(self, tasks: int) -> tuple[float, float]:
        """Tasks sent and tasks finished, a second."""
        assert self._sender.stdin
        assert self._sender.stdout
        self._sender.stdin.write(f"{tasks}\n")
        self._sender.stdin.flush()
        sent, done = map(float, self._sender.stdout.readline().split())
        return tasks / sent, tasks / done


def measure(broker: str, backend: str, names: list[str], tasks: int, rounds: int) -> dict[str, Any]:
    found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        contestants = [Contestant(name, broker, backend, folder, running) for name in names]
        for contestant in contestants:
            contestant.run(tasks // 10)
        for number in range(rounds):
            for place in range(len(contestants)):
                contestant = contestants[(number + place) % len(contestants)]
                found[contestant.name].append(contestant.run(tasks))
    return {
        name: {
            "sent": statistics.median(sent for sent, _ in values),
            "done": statistics.median(done for _, done in values),
            "rounds": [round(done, 1) for _, done in values],
        }
        for name, values in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--broker", nargs="+", choices=["redis", "rabbitmq"], default=["redis", "rabbitmq"])
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    compile_uttu()
    results = {}
    for kind in options.broker:
        with ExitStack() as running:
            server: Any = running.enter_context(RedisServer("redis") if kind == "redis" else RabbitServer())
            url = server.url.partition("?")[0]
            backend = url if kind == "redis" else "rpc://"
            results[kind] = measure(url, backend, list(_APPS), options.tasks, options.rounds)
        plain = results[kind]["plain"]["done"]
        table(
            f"No-op tasks on {kind}, a second",
            ["app", "sent", "done", "of plain"],
            [[name, row["sent"], row["done"], f"{row['done'] / plain:.0%}"] for name, row in results[kind].items()],
        )
    if not options.no_save:
        save("jobs", results)


if __name__ == "__main__":
    main()
