"""The processes of ``weft up``: each is the command that one would type, and is started again when it dies.

They are in sessions of their own, so that a Ctrl-C is heard here only and handed on once. Each has a guard, a shell
that reads from a pipe whose other end is here: when this process is killed the pipe closes, and the guard asks its
process to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from weft.cli.exits import BY_SIGNAL
from weft.cli.signals import Signals
from weft.cli.up_lines import Lines
from weft.drivers.urls import masked
from weft.engine.tasks import called, task_group
from weft.errors import WeftError
from weft.jobs import settings
from weft.jobs.embedded import Embedded

# One that dies so often in a row, each time so soon, would do so for ever.
_MOST_DEATHS: Final = 5
_SHORT_LIFE_SECONDS: Final = 10.0
_RESTART_SECONDS: Final = 0.5
# Wrong usage and wrong settings are so again the next time.
_HOPELESS: Final = (2, 3)
_LOOK_SECONDS: Final = 0.5
# Without a server, workers do not end by themselves.
_LAST_SECONDS: Final = 5.0
_GUARD: Final = 'read -r pid; read -r never; kill -TERM "$pid"'


class Plan(NamedTuple):
    """What a command line asks for. ``concurrency`` 0: as Celery chooses."""

    workers: int
    concurrency: int
    beat: bool
    flower: bool
    level: str
    app: str

    def commands(self) -> dict[str, list[str]]:
        """Names, and what follows ``weft jobs``."""
        found = {}
        for number in range(1, self.workers + 1):
            name = f"worker{number}" if self.workers > 1 else "worker"
            found[name] = ["worker", "-n", f"{name}@%h", "-l", self.level]
            if self.concurrency:
                found[name] += ["-c", str(self.concurrency)]
        if self.beat:
            found["beat"] = ["beat", "-l", self.level]
        if self.flower:
            found["flower"] = ["flower"]
        return found


def run_up(plan: Plan) -> int:
    """Returns the exit code, when it was told to end.

    :raises WeftError: the settings are wrong, the server does not come up, or one of them dies again and again.
    """
    commands = plan.commands()
    lines = Lines(commands)
    server = None
    if not plan.app:
        if broker := settings.load(Path()).broker:
            lines.say(f"the broker is {masked(broker)}")
        else:
            server = Embedded(Path())
            server.hold()
            lines.say(f"the server is in {server.place.folder}")
    app = ["-A", plan.app] if plan.app else []
    # -P: the folder it is run in must not hide Python's own modules, or ours.
    weft = [sys.executable, "-P", "-m", "weft", "jobs", *app]
    crew = Crew({name: [*weft, *words] for name, words in commands.items()}, server, lines)
    try:
        return asyncio.run(crew.run())
    finally:
        if server is not None:
            server.release()


class Crew:
    """``commands`` by the names that their lines begin with."""

    def __init__(self, commands: dict[str, list[str]], server: Embedded | None, lines: Lines) -> None:
        self._commands = commands
        self._server = server
        self._lines = lines
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._ending = asyncio.Event()
        self._stopped = False
        self._failure = ""

    async def run(self) -> int:
        """Returns the exit code, when all have ended.

        :raises WeftError: one of them could not be kept running.
        """
        signals = Signals()
        signals.listen_plain(self._drain, self._stop)
        watch = asyncio.create_task(self._watch_server())
        try:
            async with task_group() as group:
                for name, command in self._commands.items():
                    group.create_task(self._keep(name, command))
        finally:
            watch.cancel()
            signals.deaf()
        if self._failure:
            raise WeftError(self._failure)
        return BY_SIGNAL + signals.received if self._stopped and signals.received else 0

    async def _keep(self, name: str, command: Sequence[str]) -> None:
        deaths = 0
        loop = asyncio.get_running_loop()
        while not self._ending.is_set():
            began = loop.time()
            code = await self._live(name, command)
            if self._ending.is_set():
                return
            deaths = deaths + 1 if loop.time() - began < _SHORT_LIFE_SECONDS else 1
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            if code in _HOPELESS or deaths == _MOST_DEATHS:
                times = "" if code in _HOPELESS else f", {deaths} times in a row"
                self._failure = f"{name} {how}{times}; its message is above"
                self._lines.say(self._failure)
                self._drain()
                return
            self._lines.say(f"{name} {how}; it is started again")
            await called(self._ending, _RESTART_SECONDS * deaths)

    async def _live(self, name: str, command: Sequence[str]) -> int:
        """From start to end; returns the exit code."""
        guard = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", _GUARD, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert guard.stdin
        assert process.stdout
        guard.stdin.write(b"%d\n" % process.pid)
        self._running[name] = process
        if self._ending.is_set():
            self._signal(signal.SIGTERM)
        try:
            copying = asyncio.create_task(self._lines.copy(name, process.stdout))
            code = await process.wait()
            # What it started may have its output, and live on.
            await asyncio.wait([copying], timeout=1)
            copying.cancel()
            return code
        finally:
            del self._running[name]
            guard.kill()
            await guard.wait()

    async def _watch_server(self) -> None:
        while self._server is not None:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._server.was_stopped and not self._server.is_running:
                self._lines.say("the server was stopped by weft down: all end")
                self._drain()
                await asyncio.sleep(_LAST_SECONDS)
                self._stop()
                return

    def _drain(self) -> None:
        if not self._ending.is_set():
            self._ending.set()
            if self._running:
                self._lines.say("ending: waiting for the jobs that are being done; once more to stop at once")
            self._signal(signal.SIGTERM)

    def _stop(self) -> None:
        self._stopped = True
        self._ending.set()
        for process in self._running.values():
            # With all that it started: the workers' own processes are in its session.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
