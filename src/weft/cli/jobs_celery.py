"""Celery's own commands, under our roof: same words, same flags, our messages and exit codes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from weft.cli.options import AppModule
from weft.errors import BusRefused, BusUnavailable, ConfigError, WeftError

if TYPE_CHECKING:
    from celery import Celery

# What -A is without one: the app of the folder.
OURS = "weft.jobs"
# Celery's exit code for: nobody answered.
_NOBODY = 69
# What is asked of Celery without a broker.
_OFFLINE = ("--help", "--list")


class Passed(TyperCommand):
    """A command whose words all belong to Celery, ``--help`` included."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["--", *args])


def choose_app(ctx: typer.Context, app: AppModule = "") -> None:
    """The option of a group of commands; see :func:`app_of`."""
    ctx.obj = {"app": app}


def app_of(ctx: typer.Context) -> Celery:
    """The app that the command is about.

    :raises ConfigError: it can't be had.
    """
    named = name_of(ctx)
    if named == OURS:
        from weft.jobs import app

        return app
    import traceback

    from celery.app.utils import find_app

    try:
        found: Celery = find_app(named)
    except WeftError:
        raise
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"-A {named}: there is no app: {error}") from error
    except Exception as error:
        raise ConfigError(f"-A {named} can't be loaded:\n{traceback.format_exc().rstrip()}") from error
    return found


def name_of(ctx: typer.Context) -> str:
    """What was given with ``-A``."""
    return str((ctx.obj or {}).get("app") or OURS)


def hand_over(ctx: typer.Context, word: str, args: Sequence[str], *, broker: bool = True) -> None:
    """Let Celery run one of its commands, where the broker can be reached.

    :raises ConfigError: the app can't be loaded.
    :raises BusUnavailable: the broker does not answer.
    """
    import click

    app = app_of(ctx)
    if broker and not set(args) & set(_OFFLINE):
        check(app)
    from celery.bin.celery import celery

    words = ["-A", name_of(ctx), word, *args]
    # Celery starts further processes, with --detach and multi, by the words it was itself started with.
    sys.argv = ["celery", *words]
    with mapped(app):
        try:
            code = celery.main(args=words, prog_name="weft jobs", standalone_mode=False, auto_envvar_prefix="CELERY")
        except click.exceptions.Abort:
            raise typer.Exit(1) from None
        except click.ClickException as error:
            if error.exit_code == _NOBODY:
                raise WeftError("no worker answered in time: start one with: weft jobs worker") from error
            error.show()
            raise typer.Exit(error.exit_code) from error
    raise typer.Exit(code if isinstance(code, int) else 0)


def check(app: Celery) -> None:
    """Whether the broker can be reached, in one attempt.

    :raises BusError: it can't be, or says no.
    """
    with mapped(app), app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=app.conf.broker_connection_timeout)


@contextlib.contextmanager
def mapped(app: Celery) -> Iterator[None]:
    """Errors of the drivers as ours."""
    from amqp.exceptions import AccessRefused, AMQPError, PreconditionFailed
    from celery.exceptions import BackendError
    from kombu.exceptions import EncodeError, OperationalError
    from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

    from weft.drivers.urls import masked

    where = masked(str(app.conf.broker_url))
    try:
        yield
    except EncodeError as error:
        raise ConfigError(f"the arguments can't be sent as {app.conf.task_serializer}: {error}") from error
    except (OperationalError, RedisError, AMQPError, BackendError, ConnectionError, TimeoutError) as error:
        said = str(error).rstrip(".")
        # Kombu packs the errors of drivers into its own.
        if isinstance(error.__cause__ or error, AccessRefused | AuthenticationError | NoPermissionError):
            raise BusRefused(f"{where} refuses the login: {said}; see jobs.broker") from error
        if isinstance(error, PreconditionFailed):
            raise BusRefused(
                f"{where} has a queue of that name in another form: {said}; delete it there, or give another jobs.queue"
            ) from error
        raise BusUnavailable(
            f"{where} can't be reached: {said}; start it, or name another one in jobs.broker"
        ) from error
