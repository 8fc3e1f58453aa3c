"""``weft jobs revoke``: call tasks off."""

from __future__ import annotations

from typing import Annotated

import typer


def revoke(
    ctx: typer.Context,
    task_ids: Annotated[list[str], typer.Argument(help="The tasks' ids.", metavar="ID...", show_default=False)],
    terminate: Annotated[bool, typer.Option("--terminate", help="Also end it where it runs.")] = False,
    signal: Annotated[str, typer.Option("-s", "--signal", help="How to end it.", metavar="SIGNAL")] = "SIGTERM",
    timeout: Annotated[
        float, typer.Option("-t", "--timeout", help="Wait so long for workers.", metavar="SECONDS")
    ] = 1.0,
) -> None:  # fmt: skip
    """Call tasks off: a worker that gets one of them drops it. The workers remember that, the broker does not."""
    from weft.cli.jobs_celery import app_of, check, mapped
    from weft.cli.words import number
    from weft.errors import WeftError

    app = app_of(ctx)
    check(app)
    with mapped(app):
        replies = app.control.revoke(task_ids, terminate=terminate, signal=signal, reply=True, timeout=timeout)
    if not replies:
        raise WeftError("no worker answered in time, and so none knows of it: start one with: weft jobs worker")
    print(f"{number(len(task_ids), 'task')} called off, on {number(len(replies), 'worker')}")
