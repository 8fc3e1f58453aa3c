"""``weft up``: all that jobs need, in one terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import MOST_PROCESSES, AppModule


def up(
    workers: Annotated[int, typer.Option(help="Worker processes.", min=0, max=MOST_PROCESSES)] = 1,
    concurrency: Annotated[
        int,
        typer.Option(
            "-c", "--concurrency", min=0, show_default=False,
            help="Jobs at a time in each; as many as there are cores without it.",
        ),
    ] = 0,
    beat: Annotated[bool, typer.Option("--beat/--no-beat", help="Start what the schedules say.")] = True,
    flower: Annotated[bool, typer.Option("--flower/--no-flower", help="Show it all in the browser.")] = True,
    level: Annotated[
        str, typer.Option("-l", "--loglevel", metavar="LEVEL", help="What they say: debug, info, warning, error.")
    ] = "info",
    app: AppModule = "",
) -> None:  # fmt: skip
    """Start workers, beat and Flower, and the private server if no broker is set. Ctrl-C ends them all."""
    if not (workers or beat or flower):
        raise typer.BadParameter("there is nothing to run: give --workers, or leave out --no-beat or --no-flower")
    from weft.cli.up_crew import Plan, run_up

    raise typer.Exit(run_up(Plan(workers, concurrency, beat, flower, level, app)))
