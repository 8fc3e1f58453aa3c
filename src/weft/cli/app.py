"""All commands, in the order ``weft --help`` lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import typer

from weft.cli import (
    bus,
    crawl,
    demo,
    down,
    export,
    fetch,
    jobs,
    move,
    new,
    pause,
    push,
    rate,
    resume,
    retry,
    schedule,
    shell,
    status,
    stop,
    top,
    up,
    why,
    worker,
)
from weft.cli.targets import CurlCommand
from weft.version import __version__

_COMMANDS: Final[dict[str, Callable[..., None] | typer.Typer]] = {
    "new": new.new,
    "crawl": crawl.crawl,
    "worker": worker.worker,
    "status": status.status,
    "top": top.top,
    "why": why.why,
    "push": push.push,
    "pause": pause.pause,
    "resume": resume.resume,
    "stop": stop.stop,
    "rate": rate.rate,
    "retry": retry.retry,
    "export": export.export,
    "move": move.move,
    "shell": shell.shell,
    "fetch": fetch.fetch,
    "demo": demo.demo,
    "bus": bus.bus,
    "jobs": jobs.jobs,
    "schedule": schedule.schedule,
    "up": up.up,
    "down": down.down,
}
_LIKE_CURL: Final = frozenset({"shell", "fetch"})


def app_for(asked: str = "") -> typer.Typer:
    """The command that is asked for; all of them where there is no such one.

    Alone, as typer takes a millisecond or two to make each, and a crawl is to begin at once.
    """
    app = typer.Typer(
        help="Weft crawls the web: one spider file, from a laptop to a fleet.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name in [asked] if asked in _COMMANDS else _COMMANDS:
        command = _COMMANDS[name]
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=CurlCommand if name in _LIKE_CURL else None)(command)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        print(f"weft {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass
