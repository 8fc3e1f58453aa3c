"""``uttu up`` and ``uttu down``: run all processes that jobs need in one terminal.

:mod:`uttu.jobs.processes` starts them; this module writes their lines.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from importlib.util import find_spec
from typing import Annotated, Final

import typer

from uttu.cli.options import MAX_PROCESSES, AppModule
from uttu.cli.output import format_count, say
from uttu.jobs.processes import ProcessPlan, run_processes, stop_server

_COLOURS: Final = (36, 33, 32, 35, 34, 31)
_CHUNK: Final = 64 * 1024


class PrefixedOutput:
    """Writes lines to standard error with the name of their process in front; coloured on a terminal."""

    def __init__(self, names: Collection[str]) -> None:
        width = max(map(len, (*names, "up")))
        self._heads = {}
        for number, name in enumerate(("up", *names)):
            head = f"{name:{width}} | "
            if sys.stderr.isatty():
                head = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{head}\x1b[0m"
            self._heads[name] = head.encode()

    def say(self, text: str) -> None:
        """Write a line of ``uttu up`` itself."""
        self._write("up", [text.encode()])

    async def copy(self, name: str, source: asyncio.StreamReader) -> None:
        """Copy all lines until the source ends."""
        rest = b""
        while chunk := await source.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            self._write(name, lines)
        if rest:
            self._write(name, [rest])

    def _write(self, name: str, lines: list[bytes]) -> None:
        head = self._heads[name]
        sys.stderr.buffer.write(b"".join(head + line + b"\n" for line in lines))
        sys.stderr.buffer.flush()


def up(
    workers: Annotated[int, typer.Option(help="Worker processes.", min=0, max=MAX_PROCESSES)] = 1,
    concurrency: Annotated[
        int,
        typer.Option(
            "-c",
            "--concurrency",
            min=0,
            show_default=False,
            help="Jobs at a time in each worker; the number of cores by default.",
        ),
    ] = 0,
    beat: Annotated[bool, typer.Option("--beat/--no-beat", help="Run a beat, which starts scheduled tasks.")] = True,
    flower: Annotated[
        bool, typer.Option("--flower/--no-flower", help="Run Flower, which shows workers and tasks in the browser.")
    ] = True,
    dashboard: Annotated[bool, typer.Option("--dashboard/--no-dashboard", help="Serve the dashboard, too.")] = True,
    level: Annotated[
        str, typer.Option("-l", "--loglevel", metavar="LEVEL", help="Celery's own log: debug, info, warning, error.")
    ] = "info",
    app: AppModule = "",
) -> None:
    """Start workers, beat, Flower, the dashboard, and the private server if no broker is set. Ctrl-C ends them all."""
    if not (workers or beat or flower or dashboard):
        raise typer.BadParameter("Nothing to run: give --workers, or leave out one of the --no-… options")
    if flower and find_spec("flower") is None:
        flower = False
        say("uttu: Flower is not installed, so it is not started: pip install 'uttu[jobs]'")
    if dashboard and any(find_spec(name) is None for name in ("starlette", "uvicorn", "jinja2")):
        dashboard = False
        say("uttu: The dashboard is not installed, so it is not started: pip install 'uttu[dashboard]'")
    plan = ProcessPlan(workers, concurrency, beat, flower, level, app, dashboard)
    raise typer.Exit(run_processes(plan, PrefixedOutput(plan.commands())))


def down() -> None:
    """Stop the private server of this folder, even if it is in use. Its data stays; the next command restarts it."""
    done = stop_server()
    if done.folder:
        used = format_count(done.users, "connection")
        left = f"; {used} to it were open, and wait until it runs again" if done.users else ""
        print(f"stopped the server in {done.folder}{left}")
    elif done.broker:
        print(f"nothing to stop: the broker {done.broker} is not Uttu's")
    else:
        print("nothing to stop: the server of this folder is not running")
