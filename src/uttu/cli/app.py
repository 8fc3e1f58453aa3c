"""All commands, in the order ``uttu --help`` lists them.

Only the module of the command that is asked for is imported, and ``--help`` imports none of them: their summaries stand
here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

import typer

from uttu import __version__


class _Command(NamedTuple):
    """``module`` of this package has the command, or the group of commands, under the command's name.

    ``like_curl``: it takes curl commands. ``logged``: it has the log options; those like curl have them, too.
    """

    module: str
    summary: str
    like_curl: bool = False
    logged: bool = False


_COMMANDS: Final = {
    "new": _Command("dev", "Write a small spider that works."),
    "spiders": _Command("crawl", "List the spiders of this folder."),
    "crawl": _Command("crawl", "Run a spider, or resume its crawl.", logged=True),
    "worker": _Command("crawl", "Take part in a crawl that is running.", logged=True),
    "status": _Command("inspect", "Show the state of crawls."),
    "top": _Command("inspect", "Watch a crawl over all its workers."),
    "why": _Command("inspect", "Explain what happened to a URL."),
    "items": _Command("items", "Show and search the latest items of a crawl."),
    "history": _Command("history", "Show a crawl over time."),
    "events": _Command("history", "Show what happened in a crawl."),
    "workers": _Command("control", "Show the workers of a crawl and their logs."),
    "keys": _Command("inspect", "Show what a crawl takes on its Redis server."),
    "settings": _Command("inspect", "Show the settings of a crawl and their sources."),
    "push": _Command("items", "Add start URLs to a crawl."),
    "pause": _Command("control", "Pause a crawl on all its workers."),
    "resume": _Command("control", "Resume a paused crawl."),
    "stop": _Command("control", "Stop a crawl on all its workers."),
    "drain": _Command("control", "Let one worker finish and leave."),
    "rate": _Command("control", "Set the delay of one host."),
    "retry": _Command("items", "Try dead requests again."),
    "export": _Command("items", "Write a crawl's items to a file, a database or a bus.", logged=True),
    "move": _Command("items", "Move a crawl to another frontier.", logged=True),
    "shell": _Command("dev", "Fetch a page and explore it in Python.", like_curl=True),
    "fetch": _Command("dev", "Fetch one page as the crawler does.", like_curl=True),
    "demo": _Command("dev", "Watch a crawl that is killed and resumed."),
    "dashboard": _Command("dashboard", "Watch and steer everything in the browser."),
    "open": _Command("dashboard", "Open the dashboard in the browser."),
    "up": _Command("up", "Start workers, beat, Flower, the dashboard and a private server.", logged=True),
    "down": _Command("up", "Stop the private server of this folder."),
    "bus": _Command("bus", "Publish, print and inspect messages."),
    "jobs": _Command("jobs", "Run tasks and crawls on workers."),
    "schedule": _Command("schedule", "Run tasks and crawls on a schedule."),
}


# Commands of other crawlers, and what to type instead.
_INSTEAD: Final = {
    "runspider": "uttu crawl FILE",
    "run": "uttu crawl FILE",
    "start": "uttu crawl FILE",
    "startproject": "uttu new NAME",
    "genspider": "uttu new NAME",
    "init": "uttu new NAME",
    "list": "uttu status",
    "ls": "uttu status",
    "ps": "uttu status",
    "view": "uttu fetch URL",
    "parse": "uttu shell URL",
    "beat": "uttu jobs beat",
    "celery": "uttu jobs",
    "flower": "uttu jobs flower",
    "cancel": "uttu stop CRAWL",
    "kill": "uttu stop CRAWL",
    "version": "uttu --version",
    "help": "uttu --help",
}


def check_word(asked: str = "") -> None:
    """:raises UsageError: there is no such command."""
    if not asked or asked.startswith("-") or asked in _COMMANDS:
        return
    from uttu.errors import UsageError

    if asked in _INSTEAD:
        raise UsageError(f"There is no command {asked!r}; use: {_INSTEAD[asked]}")
    if asked.endswith(".py"):
        raise UsageError(f"There is no command {asked!r}; to run a spider: uttu crawl {asked}")
    import difflib

    close = difflib.get_close_matches(asked, _COMMANDS, n=1)
    raise UsageError(
        f"There is no command {asked!r}; " + (f"did you mean {close[0]!r}?" if close else "see uttu --help")
    )


def app_for(asked: str = "") -> typer.Typer:
    """The app with the command that is asked for; without a known one, with the summaries of all.

    typer takes one or two milliseconds for each command, and a module up to half a second to import.
    """
    app = typer.Typer(
        help="Uttu crawls the web: one spider file, from a laptop to a fleet.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    if asked in _COMMANDS:
        _add(app, asked)
    else:
        for name, command in _COMMANDS.items():
            app.command(name, help=command.summary)(_do_nothing)
    return app


def _add(app: typer.Typer, name: str) -> None:
    found = _COMMANDS[name]
    command = getattr(import_module(f"uttu.cli.{found.module}"), name)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    elif found.like_curl or found.logged:
        from uttu.cli.options import CurlCommand, LoggedCommand

        app.command(name, cls=CurlCommand if found.like_curl else LoggedCommand)(command)
    else:
        app.command(name)(command)


def _do_nothing() -> None:
    """Stand in for a command that is only listed."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"uttu {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass
