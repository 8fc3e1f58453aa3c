"""``weft jobs``: Celery's commands for the app of this folder."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli import jobs_call, jobs_flower, jobs_result, jobs_revoke
from weft.cli.jobs_celery import Passed, choose_app, hand_over

jobs = typer.Typer(
    help="Run tasks and crawls as jobs, on workers, now or by a schedule. Celery's own words and flags.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Words = Annotated[list[str] | None, typer.Argument(metavar="[CELERY'S OPTIONS]", show_default=False)]


jobs.callback()(choose_app)


@jobs.command("worker", cls=Passed)
def worker(ctx: typer.Context, args: Words = None) -> None:
    """Do jobs: -c 4 at a time, -Q slow,fast only from these queues …"""
    hand_over(ctx, "worker", args or ())


@jobs.command("beat", cls=Passed)
def beat(ctx: typer.Context, args: Words = None) -> None:
    """Start what the schedules say. Several may run: one does it, another takes over."""
    hand_over(ctx, "beat", args or ())


@jobs.command("multi", cls=Passed)
def multi(ctx: typer.Context, args: Words = None) -> None:
    """Start, stop, restart several workers in the background: start 3 -c 4."""
    hand_over(ctx, "multi", args or ())


@jobs.command("status", cls=Passed)
def status(ctx: typer.Context, args: Words = None) -> None:
    """Which workers are there."""
    hand_over(ctx, "status", args or ())


@jobs.command("inspect", cls=Passed)
def inspect(ctx: typer.Context, args: Words = None) -> None:
    """Ask workers: active, reserved, scheduled, registered, stats, ping …"""
    hand_over(ctx, "inspect", args or ())


@jobs.command("control", cls=Passed)
def control(ctx: typer.Context, args: Words = None) -> None:
    """Tell workers: rate_limit TASK 10/m, pool_grow 2, add_consumer QUEUE, shutdown …"""
    hand_over(ctx, "control", args or ())


@jobs.command("purge", cls=Passed)
def purge(ctx: typer.Context, args: Words = None) -> None:
    """Drop all messages that wait in the queues. There is no way back."""
    hand_over(ctx, "purge", args or ())


jobs.command("call")(jobs_call.call)
jobs.command("result")(jobs_result.result)
jobs.command("revoke")(jobs_revoke.revoke)
jobs.command("flower", cls=Passed)(jobs_flower.flower)
