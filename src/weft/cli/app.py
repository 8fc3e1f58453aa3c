"""All commands, in the order ``weft --help`` lists them."""

from __future__ import annotations

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

app = typer.Typer(
    help="Weft crawls the web: one spider file, from a laptop to a fleet.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"weft {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


app.command("new")(new.new)
app.command("crawl")(crawl.crawl)
app.command("worker")(worker.worker)
app.command("status")(status.status)
app.command("top")(top.top)
app.command("why")(why.why)
app.command("push")(push.push)
app.command("pause")(pause.pause)
app.command("resume")(resume.resume)
app.command("stop")(stop.stop)
app.command("rate")(rate.rate)
app.command("retry")(retry.retry)
app.command("export")(export.export)
app.command("move")(move.move)
app.command("shell", cls=CurlCommand)(shell.shell)
app.command("fetch", cls=CurlCommand)(fetch.fetch)
app.command("demo")(demo.demo)
app.add_typer(bus.bus, name="bus")
app.add_typer(jobs.jobs, name="jobs")
app.add_typer(schedule.schedule, name="schedule")
app.command("up")(up.up)
app.command("down")(down.down)
