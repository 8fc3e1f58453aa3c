"""``weft jobs result``: what came of a task."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from celery import Celery


def result(
    ctx: typer.Context,
    task_id: Annotated[str, typer.Argument(help="The task's id.", metavar="ID", show_default=False)],
    traceback: Annotated[bool, typer.Option("--traceback", help="Where it failed, instead.")] = False,
    state: Annotated[bool, typer.Option("--state", help="How it stands now, with its progress; don't wait.")] = False,
    timeout: Annotated[
        float | None, typer.Option(help="Wait no longer than this.", metavar="SECONDS", show_default=False)
    ] = None,
) -> None:
    """Wait for a task, and print what it returned, as JSON. It failed: exit code 1."""
    from weft.cli.jobs_celery import app_of, mapped
    from weft.cli.words import print_json
    from weft.errors import ConfigError

    app = app_of(ctx)
    if str(app.conf.result_backend).startswith("rpc"):
        raise ConfigError(
            "results by rpc:// go to the process that has sent the task, and to no other: to look at them from "
            "elsewhere, set jobs.backend to redis://… or db+sqlite:///…"
        )
    if not (state or traceback):
        show(app, task_id, timeout)
        return
    with mapped(app):
        found = app.AsyncResult(task_id)
        if traceback:
            print(found.traceback or "")
        else:
            info = found.info
            print_json(
                {"id": task_id, "state": found.state, "info": str(info) if isinstance(info, Exception) else info}
            )


def show(app: Celery, task_id: str, timeout: float | None = None) -> None:
    """Wait for the result and print it; the error goes to standard error."""
    from celery.exceptions import TimeoutError as TookTooLong
    from celery.result import allow_join_result

    from weft.cli.jobs_celery import mapped
    from weft.cli.words import print_json

    found = app.AsyncResult(task_id)
    with mapped(app), allow_join_result():
        try:
            value = found.get(timeout=timeout, propagate=False)
        except TookTooLong:
            print(f"weft: task {task_id} is not done after {timeout:g} seconds: {found.state}", file=sys.stderr)
            raise typer.Exit(1) from None
        failed = not found.successful()
    if failed:
        print(f"weft: task {task_id}: {found.state}: {value!r}", file=sys.stderr)
        raise typer.Exit(1)
    print_json(value)
