"""Run all processes that jobs need, and restart those that die: workers, a beat, Flower, the dashboard.

Each process is a command that a user could type (``uttu jobs worker``, ``uttu dashboard`` …), and is restarted when it
dies. If one dies ``_MAX_DEATHS`` times in a row, each time within ``_SHORT_LIFE_SECONDS``, all are ended. Flower
and the dashboard are left out instead.

The processes run in separate sessions, so that only this process receives Ctrl-C and passes it on once. Each one has a
guard, a shell that reads from a pipe whose other end is here. If this process is killed, the pipe closes, and the guard
sends SIGTERM to its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from uttu.clients.addresses import mask_password
from uttu.engine.aio import task_group, wait_for_event
from uttu.errors import BY_SIGNAL, UttuError
from uttu.jobs.app import App
from uttu.jobs.embedded import Embedded
from uttu.jobs.settings import load_job_settings
from uttu.operations.jobs import check_broker
from uttu.runtime.signals import Signals

_log = logging.getLogger("uttu.jobs")
# A process that dies this many times in a row, each time this soon after its start, is not restarted.
_MAX_DEATHS: Final = 5
_SHORT_LIFE_SECONDS: Final = 10.0
_RESTART_SECONDS: Final = 0.5
# Exit codes for wrong usage and wrong settings. A restart would not help.
_FINAL_EXIT_CODES: Final = (2, 3)
_LOOK_SECONDS: Final = 0.2
_FLOWER: Final = "flower"
_DASHBOARD: Final = "dashboard"
# The others go on without these.
_OPTIONAL: Final = (_FLOWER, _DASHBOARD)
# After the server is stopped, wait this long, then kill: workers do not end by themselves without a server.
_STOP_SECONDS: Final = 5.0
_GUARD_SCRIPT: Final = 'read -r pid; read -r never; kill -TERM "$pid"'


class ProcessOutput(Protocol):
    """Where the lines of the processes go."""

    def say(self, text: str) -> None:
        """Write a line about the processes."""

    async def copy(self, name: str, source: asyncio.StreamReader) -> None:
        """Copy all lines of a process until its output ends."""


class ProcessPlan(NamedTuple):
    """The processes to run. ``concurrency`` 0 means Celery's default, and an empty ``app`` the app of the folder."""

    workers: int
    concurrency: int
    beat: bool
    flower: bool
    level: str
    app: str
    dashboard: bool = False

    def commands(self) -> dict[str, list[str]]:
        """The commands by process name, as arguments of ``uttu jobs``; that of the dashboard as those of ``uttu``."""
        found = {}
        for number in range(1, self.workers + 1):
            name = f"worker{number}" if self.workers > 1 else "worker"
            found[name] = ["worker", "-n", f"{name}@%h", "-l", self.level]
            if self.concurrency:
                found[name] += ["-c", str(self.concurrency)]
        if self.beat:
            found["beat"] = ["beat", "-l", self.level]
        if self.flower:
            found[_FLOWER] = ["flower"]
        if self.dashboard:
            found[_DASHBOARD] = ["dashboard"]
        return found


def run_processes(plan: ProcessPlan, lines: ProcessOutput, folder: Path = Path()) -> int:
    """Run until a signal ends it. Returns the exit code.

    Starts the private server of the folder if no broker is set.

    :raises UttuError: the settings are wrong, the server does not start, or a process dies repeatedly.
    """
    server = None
    leads = -1
    if not plan.app:
        if broker := load_job_settings(folder).broker:
            lines.say(f"the broker is {mask_password(broker)}")
            # Check here for one message, instead of one from each process at each restart.
            check_broker(App.load(folder))
        else:
            server = Embedded(folder)
            server.hold()
            leads = server.lead()
            lines.say(f"the server is in {server.place.folder}")
    app = ["-A", plan.app] if plan.app else []
    # -P: modules in the current folder must not hide Python's own, or ours.
    uttu = [sys.executable, "-P", "-m", "uttu"]
    commands = {
        name: [*uttu, *words] if name == _DASHBOARD else [*uttu, "jobs", *app, *words]
        for name, words in plan.commands().items()
    }
    crew = ProcessGroup(commands, server, lines)
    try:
        return asyncio.run(crew.run())
    finally:
        if leads >= 0:
            os.close(leads)
        if server is not None:
            server.release()


class StoppedServer(msgspec.Struct, frozen=True):
    """What :func:`stop_server` did.

    ``folder``: where the data of the stopped server is; empty if none was running. ``users``: connections that it had.
    ``broker``: the broker in the settings, which is not the folder's own; without its password.
    """

    folder: str = ""
    users: int = 0
    broker: str = ""


def stop_server(folder: Path = Path()) -> StoppedServer:
    """Stop the private server of a folder, even if it is in use. Its data stays.

    :raises ConfigError: ``uttu.toml`` cannot be read.
    """
    server = Embedded(folder)
    users = server.users()
    if server.down():
        return StoppedServer(str(server.place.folder), users)
    return StoppedServer(broker=mask_password(load_job_settings(folder).broker))


class ProcessGroup:
    """Starts the commands and restarts those that die. The keys of ``commands`` are the prefixes of their lines."""

    def __init__(self, commands: dict[str, list[str]], server: Embedded | None, lines: ProcessOutput) -> None:
        self._commands = commands
        self._server = server
        self._lines = lines
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._ending = asyncio.Event()
        self._stopped = False
        self._failure = ""

    async def run(self) -> int:
        """Run until all processes have ended. Returns the exit code.

        :raises UttuError: a process could not be kept running.
        """
        signals = Signals()
        signals.install(self._drain, self._stop)
        watch = asyncio.create_task(self._watch_server())
        try:
            async with task_group() as group:
                for name, command in self._commands.items():
                    group.create_task(self._keep(name, command))
        finally:
            watch.cancel()
            signals.deaf()
        if self._failure:
            raise UttuError(self._failure)
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
            if code in _FINAL_EXIT_CODES or deaths == _MAX_DEATHS:
                times = "" if code in _FINAL_EXIT_CODES else f", {deaths} times in a row"
                if name in _OPTIONAL and len(self._commands) > 1:
                    self._lines.say(f"{name} {how}{times}; its message is above. The others go on without it")
                    return
                self._failure = f"{name} {how}{times}; its message is above"
                self._lines.say(self._failure)
                self._drain()
                return
            self._lines.say(f"{name} {how}; it is started again")
            await wait_for_event(self._ending, _RESTART_SECONDS * deaths)

    async def _live(self, name: str, command: Sequence[str]) -> int:
        """Run a process from start to end. Returns its exit code."""
        guard = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", _GUARD_SCRIPT, stdin=asyncio.subprocess.PIPE, start_new_session=True
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
        _log.info("%s has started, as process %d", name, process.pid)
        self._running[name] = process
        if self._ending.is_set():
            self._signal(signal.SIGTERM)
        try:
            copying = asyncio.create_task(self._lines.copy(name, process.stdout))
            code = await process.wait()
            # A child of the process may hold its output open and live on, so don't wait for the end of the output.
            await asyncio.wait([copying], timeout=1)
            copying.cancel()
            _log.info("%s, process %d, has ended with exit code %d", name, process.pid, code)
            return code
        finally:
            del self._running[name]
            guard.kill()
            await guard.wait()

    async def _watch_server(self) -> None:
        while self._server is not None:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._server.was_stopped:
                self._lines.say("the server is stopped by uttu down: all end")
                self._drain()
                await asyncio.sleep(_STOP_SECONDS)
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
            # Kill the whole session, with the child processes of the workers.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
