"""``uttu jobs``: Celery's commands for the app of this folder, with Celery's words and flags, our messages and codes.

Most commands pass their arguments to Celery (:func:`run_celery`). ``call``, ``result``, ``revoke`` and ``flower`` have
their own options. Commands that talk to the broker check first that it answers, so that a missing broker is one
message.

Flower is started with safe defaults, so that it can be left running: on loopback, with its API on, behind a password.
Without a password, Flower lets any web page use its API, and the API can start and stop everything that workers do.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from uttu.cli.options import AppModule, AsJson
from uttu.errors import ConfigError, UttuError
from uttu.operations import format_count
from uttu.operations import jobs as operations
from uttu.operations.jobs import check_broker, map_driver_errors

if TYPE_CHECKING:
    from celery import Celery

# The default of -A: the app of this folder.
DEFAULT_APP = "uttu.jobs"
# Celery's exit code if no worker answered.
_NO_REPLY_CODE = 69
# Options for which Celery needs no broker.
_OFFLINE = ("--help", "--list")


class PassthroughCommand(TyperCommand):
    """A command that passes all its arguments to Celery, also ``--help``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["--", *args])


def remember_app_option(ctx: typer.Context, app: AppModule = "") -> None:
    """Store the ``-A`` option of a group of commands for :func:`load_app`."""
    ctx.obj = {"app": app}


def load_app(ctx: typer.Context) -> Celery:
    """The Celery app of the command.

    :raises ConfigError: the app cannot be loaded.
    """
    named = app_name(ctx)
    if named == DEFAULT_APP:
        from uttu.jobs import app

        return app
    from uttu.jobs.app import load_named_app

    return load_named_app(named)


def app_name(ctx: typer.Context) -> str:
    """The value of ``-A``, or its default."""
    return str((ctx.obj or {}).get("app") or DEFAULT_APP)


def run_celery(ctx: typer.Context, word: str, args: Sequence[str], *, broker: bool = True) -> None:
    """Run one of Celery's commands, after a check that the broker answers. Does not return.

    :raises ConfigError: the app cannot be loaded.
    :raises BusUnavailable: the broker does not answer.
    """
    app = load_app(ctx)
    import click

    if broker and not set(args) & set(_OFFLINE):
        check_broker(app)
    from celery.bin.celery import celery

    words = ["-A", app_name(ctx), word, *args]
    # With --detach and multi, Celery starts further processes with the arguments in sys.argv.
    sys.argv = ["celery", *words]
    with map_driver_errors(app):
        try:
            code = celery.main(args=words, prog_name="uttu jobs", standalone_mode=False, auto_envvar_prefix="CELERY")
        except click.exceptions.Abort:
            raise typer.Exit(1) from None
        except click.ClickException as error:
            if error.exit_code == _NO_REPLY_CODE:
                raise UttuError("No worker answered in time. Start one with: uttu jobs worker") from error
            error.show()
            raise typer.Exit(error.exit_code) from error
    raise typer.Exit(code if isinstance(code, int) else 0)


def result(
    ctx: typer.Context,
    task_id: Annotated[str, typer.Argument(help="The task's id.", metavar="ID", show_default=False)],
    traceback: Annotated[bool, typer.Option("--traceback", help="Print the traceback instead.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Print its state and progress now; don't wait.")] = False,
    timeout: Annotated[
        float | None, typer.Option(help="Maximum time to wait.", metavar="SECONDS", show_default=False)
    ] = None,
) -> None:
    """Wait for a task, and print its result as JSON. Exits with 1 if the task failed."""
    from uttu.cli.output import print_json

    app = load_app(ctx)
    operations.check_results(app)
    if not (state or traceback):
        print_result(app, task_id, timeout)
        return
    found = operations.read_task(app, task_id)
    if traceback:
        print(found.traceback)
    else:
        print_json({"id": found.id, "state": found.state, "info": found.info})


def print_result(app: Celery, task_id: str, timeout: float | None = None) -> None:
    """Wait for the result and print it. An error goes to standard error, with exit code 1."""
    from uttu.cli.output import print_json, say

    found = operations.wait_for_result(app, task_id, timeout, _say_at_once)
    if not found.is_done:
        say(f"uttu: task {task_id} is not done after {timeout:g} seconds: {found.state}")
        raise typer.Exit(1)
    if not found.is_successful:
        say(f"uttu: task {task_id}: {found.state}: {found.value!r}")
        raise typer.Exit(1)
    print_json(found.value)


def _say_at_once(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def call(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The task's name.", metavar="TASK", show_default=False)],
    args: Annotated[str, typer.Option("-a", "--args", help="Arguments, a JSON array.", metavar="JSON")] = "[]",
    kwargs: Annotated[
        str, typer.Option("-k", "--kwargs", help="Arguments by name, a JSON object.", metavar="JSON")
    ] = "{}",
    eta: Annotated[str, typer.Option(help="Not before this time, ISO 8601.", metavar="TIME", show_default=False)] = "",
    countdown: Annotated[
        float | None, typer.Option(help="Run it after this many seconds.", metavar="SECONDS", show_default=False)
    ] = None,
    expires: Annotated[
        str,
        typer.Option(
            help="Drop it if it has not begun after this many seconds, or at this time.",
            metavar="SECONDS|TIME",
            show_default=False,
        ),
    ] = "",
    serializer: Annotated[str, typer.Option(help="Serializer of the arguments.", metavar="NAME")] = "json",
    queue: Annotated[str, typer.Option(help="Instead of the task's own.", metavar="QUEUE", show_default=False)] = "",
    exchange: Annotated[str, typer.Option(help="An exchange.", metavar="NAME", show_default=False)] = "",
    routing_key: Annotated[str, typer.Option(help="A routing key.", metavar="KEY", show_default=False)] = "",
    priority: Annotated[
        int | None, typer.Option(help="Priority, 0 to 9; 9 comes first.", min=0, max=9, show_default=False)
    ] = None,
    remote: Annotated[bool, typer.Option("--remote", help="Don't check the name: only workers have the task.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and print it as JSON.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(help="With --wait: wait no longer than this.", metavar="SECONDS", min=0, show_default=False),
    ] = None,
) -> None:
    """Send a task, and print its id."""
    given: dict[str, Any] = {
        "args": _parse_json(args, list, "--args, a JSON array"),
        "kwargs": _parse_json(kwargs, dict, "--kwargs, a JSON object"),
        "eta": _parse_time(eta) if eta else None,
        "countdown": countdown,
        "expires": _parse_seconds_or_time(expires) if expires else None,
        "serializer": serializer,
        "queue": queue or None,
        "exchange": exchange or None,
        "routing_key": routing_key or None,
        "priority": priority,
    }
    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout needs --wait")
    app = load_app(ctx)
    options = {key: value for key, value in given.items() if value is not None}
    task_id = operations.send_task(app, name, options, remote=remote)
    if not wait:
        print(task_id)
        return
    print_result(app, task_id, timeout)


def _parse_json(text: str, kind: type, flag: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise typer.BadParameter(f"{text!r} is not {flag}: {error}") from error


def _parse_time(text: str) -> Any:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time; write it like 2030-01-31T07:00:00+00:00") from error


def _parse_seconds_or_time(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return _parse_time(text)


def revoke(
    ctx: typer.Context,
    task_ids: Annotated[list[str], typer.Argument(help="The tasks' ids.", metavar="ID...", show_default=False)],
    terminate: Annotated[bool, typer.Option("--terminate", help="Also end the tasks that are running.")] = False,
    signal: Annotated[
        str, typer.Option("-s", "--signal", help="The signal that ends running tasks.", metavar="SIGNAL")
    ] = "SIGTERM",
    timeout: Annotated[
        float, typer.Option("-t", "--timeout", help="How long to wait for answers of workers.", metavar="SECONDS")
    ] = 1.0,
) -> None:
    """Cancel tasks: a worker that gets one of them drops it. Workers remember this, the broker does not."""
    app = load_app(ctx)
    workers = operations.revoke_tasks(app, task_ids, terminate=terminate, signal=signal, timeout=timeout)
    print(f"{format_count(len(task_ids), 'task')} revoked, on {format_count(workers, 'worker')}")


def flower(
    ctx: typer.Context,
    args: Annotated[list[str] | None, typer.Argument(metavar="[FLOWER'S OPTIONS]", show_default=False)] = None,
) -> None:
    """Watch workers, tasks and queues in the browser: --port=5555, --basic-auth=USER:PASSWORD …"""
    from uttu.jobs.flower import build_app_arguments

    given = list(args or ())
    app = load_app(ctx)
    if find_spec("flower") is None:
        raise ConfigError("Flower needs the \"jobs\" extra: pip install 'uttu[jobs]'")
    if "--help" in given:
        run_celery(ctx, "flower", given, broker=False)
    words = build_app_arguments(app, given, os.environ)
    app.loader.import_default_modules()
    try:
        run_celery(ctx, "flower", words)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
            raise
        raise ConfigError(f"Flower cannot listen: {error.strerror}; give another with --port=PORT") from error


jobs = typer.Typer(
    help="Run tasks and crawls as jobs, on workers, now or on a schedule. Commands and options are Celery's.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Words = Annotated[list[str] | None, typer.Argument(metavar="[CELERY'S OPTIONS]", show_default=False)]


jobs.callback()(remember_app_option)


@jobs.command("worker", cls=PassthroughCommand)
def worker(ctx: typer.Context, args: Words = None) -> None:
    """Run jobs: -c 4 at a time, -Q slow,fast only from these queues …"""
    run_celery(ctx, "worker", args or ())


@jobs.command("beat", cls=PassthroughCommand)
def beat(ctx: typer.Context, args: Words = None) -> None:
    """Start scheduled jobs. Several may run: one is active, the others take over."""
    run_celery(ctx, "beat", args or ())


@jobs.command("multi", cls=PassthroughCommand)
def multi(ctx: typer.Context, args: Words = None) -> None:
    """Start, stop, restart several workers in the background: start 3 -c 4."""
    run_celery(ctx, "multi", args or ())


@jobs.command("status", cls=PassthroughCommand)
def status(ctx: typer.Context, args: Words = None) -> None:
    """List the workers that answer."""
    run_celery(ctx, "status", args or ())


@jobs.command("inspect", cls=PassthroughCommand)
def inspect(ctx: typer.Context, args: Words = None) -> None:
    """Ask workers: active, reserved, scheduled, registered, stats, ping …"""
    run_celery(ctx, "inspect", args or ())


@jobs.command("control", cls=PassthroughCommand)
def control(ctx: typer.Context, args: Words = None) -> None:
    """Send commands to workers: rate_limit TASK 10/m, pool_grow 2, add_consumer QUEUE, shutdown …"""
    run_celery(ctx, "control", args or ())


@jobs.command("purge", cls=PassthroughCommand)
def purge(ctx: typer.Context, args: Words = None) -> None:
    """Delete all messages that wait in the queues. This cannot be undone."""
    run_celery(ctx, "purge", args or ())


@jobs.command("queues")
def queues(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show how many tasks wait in each queue, and how many workers serve it."""
    from uttu.cli.output import Screen, print_json

    app = load_app(ctx)
    check_broker(app)
    found = operations.read_queues(app)
    if as_json:
        print_json(found)
        return
    rows = [(each.name, f"{each.messages:,}", "" if each.consumers is None else str(each.consumers)) for each in found]
    Screen().table(("queue", "tasks", "workers"), rows, ("tasks", "workers"))


jobs.command("call")(call)
jobs.command("result")(result)
jobs.command("revoke")(revoke)
jobs.command("flower", cls=PassthroughCommand)(flower)
