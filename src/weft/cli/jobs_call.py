"""``weft jobs call``: have a task done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from celery import Celery


def call(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The task's name.", metavar="TASK", show_default=False)],
    args: Annotated[str, typer.Option("-a", "--args", help="Arguments, a JSON array.", metavar="JSON")] = "[]",
    kwargs: Annotated[
        str, typer.Option("-k", "--kwargs", help="Arguments by name, a JSON object.", metavar="JSON")
    ] = "{}",
    eta: Annotated[str, typer.Option(help="Not before this time, ISO 8601.", metavar="TIME", show_default=False)] = "",
    countdown: Annotated[
        float | None, typer.Option(help="Not before so many seconds.", metavar="SECONDS", show_default=False)
    ] = None,
    expires: Annotated[
        str, typer.Option(help="Not after so many seconds, or this time.", metavar="SECONDS|TIME", show_default=False)
    ] = "",
    serializer: Annotated[str, typer.Option(help="How arguments are written.", metavar="NAME")] = "json",
    queue: Annotated[str, typer.Option(help="Instead of the task's own.", metavar="QUEUE", show_default=False)] = "",
    exchange: Annotated[str, typer.Option(help="An exchange.", metavar="NAME", show_default=False)] = "",
    routing_key: Annotated[str, typer.Option(help="A routing key.", metavar="KEY", show_default=False)] = "",
    priority: Annotated[
        int | None, typer.Option(help="0 to 9, 9 first.", min=0, max=9, show_default=False)
    ] = None,
    remote: Annotated[bool, typer.Option("--remote", help="Only workers know the task; don't look here.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its result and print that, as JSON.")] = False,
) -> None:  # fmt: skip
    """Send a task, and print its id."""
    from weft.cli.jobs_celery import app_of, check, mapped
    from weft.cli.jobs_result import show

    given: dict[str, Any] = {
        "args": _json(args, list, "--args, a JSON array"),
        "kwargs": _json(kwargs, dict, "--kwargs, a JSON object"),
        "eta": _time(eta) if eta else None,
        "countdown": countdown,
        "expires": _seconds_or_time(expires) if expires else None,
        "serializer": serializer,
        "queue": queue or None,
        "exchange": exchange or None,
        "routing_key": routing_key or None,
        "priority": priority,
    }
    app = app_of(ctx)
    if not remote:
        find(app, name)
    check(app)
    with mapped(app):
        sent = app.send_task(name, **{key: value for key, value in given.items() if value is not None})
    if not wait:
        print(sent.id)
        return
    show(app, sent.id)


def find(app: Celery, name: str) -> None:
    """See that the app has the task.

    :raises ConfigError: it has not.
    """
    import difflib

    from weft.errors import ConfigError

    app.loader.import_default_modules()
    if name in app.tasks:
        return
    known = sorted(task for task in app.tasks if not task.startswith("celery."))
    close = difflib.get_close_matches(name, known, n=1)
    what = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known) or 'none'}"
    raise ConfigError(f"there is no task {name!r}; {what} If only workers know it, add --remote")


def _json(text: str, kind: type, flag: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise typer.BadParameter(f"{text!r} is not {flag}: {error}") from error


def _time(text: str) -> Any:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time; write it like 2030-01-31T07:00:00+00:00") from error


def _seconds_or_time(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return _time(text)
