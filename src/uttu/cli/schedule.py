"""``uttu schedule``: tasks and crawls that run repeatedly.

The commands work on the schedules in the store, and on those in code or ``uttu.toml`` that no beat has copied to the
store yet. A beat (``uttu jobs beat``) starts what is due. Commands change the store; only ``run`` sends a task itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from uttu.cli.jobs import load_app, remember_app_option
from uttu.cli.options import Arguments, AsJson, SettingFlags, SpiderName, parse_pairs
from uttu.cli.output import Screen, format_age, format_zoned, print_json, say
from uttu.jobs.schedules import catalog
from uttu.jobs.schedules.catalog import CRAWL, ScheduleCatalog, find_unknown_tasks, list_rows, utc_now
from uttu.jobs.schedules.schedule import StoredSchedule
from uttu.jobs.schedules.triggers import Cron, load_zone

ScheduleName = Annotated[str, typer.Argument(help="The schedule's name.", metavar="NAME", show_default=False)]


@contextlib.contextmanager
def open_catalog(ctx: typer.Context) -> Iterator[ScheduleCatalog]:
    """The schedules of the app that the command uses.

    :raises ConfigError: the app cannot be loaded.
    :raises StoreError: the store is not reachable.
    """
    with catalog.open_catalog(load_app(ctx)) as book:
        yield book


def show_schedules(found: list[dict[str, Any]]) -> None:
    """Print the schedules as a table, with notes below it."""
    from uttu.jobs.schedules.catalog import ScheduleStatus

    screen = Screen()
    if not found:
        screen.line("There are no schedules. Add one: uttu schedule add NAME --crawl FILE --crontab '0 7 * * *'")
        return
    head = ("NAME", "STATE", "WHEN", "TASK", "NEXT", "LAST", "FROM")
    screen.table(head, [_cells(row) for row in found])
    for row in found:
        if row["note"]:
            screen.line(f"{row['name']}: {row['note']}")
        for word, count in (
            ("skipped because the previous run had not ended", row["skipped"]),
            ("missed", row["missed"]),
        ):
            if count:
                screen.line(f"{row['name']}: {word}: {count:,}")
    if any(row["state"] == ScheduleStatus.NEW for row in found):
        screen.line("new: no beat has seen it yet; start one with uttu jobs beat, or uttu up")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from uttu.jobs.schedules.catalog import ScheduleStatus

    task = " ".join([row["task"], *map(str, row["args"])])
    timezone = row["when"].get("timezone", "")
    soon = "" if row["state"] == ScheduleStatus.PAUSED else _format_moment(row["next"], timezone)
    return row["name"], row["state"], row["text"], task, soon, _format_moment(row["last"], timezone), row["source"]


def _format_moment(text: str | None, timezone: str) -> str:
    """A time in the schedule's time zone, or in the local one if it has none."""
    if not text:
        return ""
    return format_zoned(datetime.fromisoformat(text), load_zone(timezone) if timezone else None)


def format_next(kept: StoredSchedule) -> str:
    """The next time of a schedule, as in the table."""
    when = kept.entry.when
    return format_zoned(kept.state.next, load_zone(when.timezone) if isinstance(when, Cron) else None)


def add(
    ctx: typer.Context,
    name: ScheduleName,
    task: Annotated[str, typer.Option(help="The task's name.", metavar="TASK", show_default=False)] = "",
    crawl: Annotated[
        Path | None,
        typer.Option(help="Crawl this spider file, instead of a task.", metavar="FILE", show_default=False),
    ] = None,
    every: Annotated[
        float | None, typer.Option(help="Interval in seconds.", metavar="SECONDS", show_default=False)
    ] = None,
    crontab: Annotated[
        str | None,
        typer.Option(
            help='Minute, hour, day, month, day of the week: "0 7 * * mon-fri".', metavar="LINE", show_default=False
        ),
    ] = None,
    solar: Annotated[
        str | None, typer.Option(help="sunrise, sunset, dawn_civil …", metavar="EVENT", show_default=False)
    ] = None,
    latitude: Annotated[float | None, typer.Option(help="Degrees north.", metavar="DEG", show_default=False)] = None,
    longitude: Annotated[float | None, typer.Option(help="Degrees east.", metavar="DEG", show_default=False)] = None,
    timezone: Annotated[
        str,
        typer.Option(help="Time zone of the crontab; jobs.timezone by default.", metavar="ZONE", show_default=False),
    ] = "",
    args: Annotated[str, typer.Option("--args", help="Arguments, a JSON array.", metavar="JSON")] = "[]",
    kwargs: Annotated[str, typer.Option("--kwargs", help="Arguments by name, a JSON object.", metavar="JSON")] = "{}",
    output: Annotated[
        list[str],
        typer.Option("-o", "--output", help="Where the crawl's items go.", metavar="TARGET", show_default=False),
    ] = [],  # noqa: B006
    spider: SpiderName = "",
    arguments: Arguments = [],  # noqa: B006
    settings: SettingFlags = [],  # noqa: B006
    workers: Annotated[int, typer.Option(help="Workers that take part in the crawl.", min=1)] = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start a new crawl instead of resuming the last.")] = False,
    queue: Annotated[str, typer.Option(help="Instead of the task's own.", metavar="QUEUE", show_default=False)] = "",
    priority: Annotated[
        int | None, typer.Option(help="Priority, 0 to 9; 9 comes first.", min=0, max=9, show_default=False)
    ] = None,
    expires: Annotated[
        float | None,
        typer.Option(help="Drop a run that no worker has begun by then.", metavar="SECONDS", show_default=False),
    ] = None,
    overlap: Annotated[
        str,
        typer.Option(
            help="If the previous run has not ended: skip, queue or allow. Crawls skip and tasks allow by default.",
            metavar="WORD",
            show_default=False,
        ),
    ] = "",
    grace: Annotated[
        float,
        typer.Option(help="How late a run may start if no beat ran in time; inf: any time later.", metavar="SECONDS"),
    ] = 3600.0,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a schedule of the same name.")] = False,
    remote: Annotated[bool, typer.Option("--remote", help="Don't check the name: only workers have the task.")] = False,
) -> None:
    """Run a task or a crawl repeatedly, from now on."""
    if bool(task) == (crawl is not None):
        raise typer.BadParameter("Give either --task TASK or --crawl FILE")
    table: dict[str, Any] = {"task": task, "args": _parse_json(args, list, "--args, a JSON array")}
    table["kwargs"] = _parse_json(kwargs, dict, "--kwargs, a JSON object")
    if crawl is not None:
        given = {
            "output": output,
            "spider_name": spider,
            "arguments": parse_pairs(arguments, "-a"),
            "settings": parse_pairs(settings, "-s"),
            "workers": workers if workers > 1 else 0,
            "fresh": fresh,
        }
        table["task"], table["args"] = CRAWL, [str(crawl)]
        table["kwargs"] = {key: value for key, value in given.items() if value} | table["kwargs"]
    elif output or spider or arguments or settings or fresh or workers > 1:
        raise typer.BadParameter("-o, -a, -s, --spider, --workers and --fresh need --crawl FILE")
    optional = {
        "every": every,
        "crontab": crontab,
        "solar": solar,
        "latitude": latitude,
        "longitude": longitude,
        "timezone": timezone or None,
        "queue": queue or None,
        "priority": priority,
        "expires": expires,
        "overlap": overlap or ("skip" if crawl is not None else None),
    }
    table |= {key: value for key, value in optional.items() if value is not None} | {"grace": grace}
    with open_catalog(ctx) as book:
        kept = book.add(name, table, replace=replace, remote=remote, is_crawl=crawl is not None)
        if crawl is not None and not (Path(book.app.folder) / crawl).exists():
            say(f"uttu: {crawl} does not exist here; workers must have it")
    print(f"{name}: {kept.entry.task} {kept.entry.when}; next {format_next(kept)}")


def _parse_json(text: str, kind: type[Any], flag: str) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise typer.BadParameter(f"{text!r} is not {flag}: {error}") from error


def ls(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the schedules: from code, from uttu.toml, and added ones."""
    with open_catalog(ctx) as book:
        found = list_rows(book)
        if as_json:
            print_json(found)
        else:
            show_schedules(found)
        for text in book.wrong:
            say(f"uttu: Skipped: {text}")
        for text in find_unknown_tasks(book.app, [kept.entry for kept in book.all.values()]):
            say(f"uttu: {text}")


def preview(
    ctx: typer.Context,
    what: Annotated[
        str, typer.Argument(help="A schedule, or a crontab line.", metavar="NAME|LINE", show_default=False)
    ],
    count: Annotated[int, typer.Option("-n", "--count", help="How many times to print.", min=1, max=10_000)] = 5,
    timezone: Annotated[
        str, typer.Option(help="Time zone of the line; jobs.timezone by default.", metavar="ZONE", show_default=False)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Print the next times of a schedule, in its time zone."""
    if catalog.is_crontab(what):
        found = catalog.preview_crontab(what, timezone or catalog.app_timezone(load_app(ctx)), count)
    else:
        with open_catalog(ctx) as book:
            found = book.preview(what, count, timezone)
    if as_json:
        print_json([moment.isoformat() for moment in found])
        return
    for moment in found:
        print(f"{moment:%a} {moment.isoformat(' ', 'seconds')}  {format_age((utc_now() - moment).total_seconds())}")


def pause(ctx: typer.Context, name: ScheduleName) -> None:
    """Pause a schedule until uttu schedule resume. A current run continues."""
    with open_catalog(ctx) as book:
        book.pause(name)
    print(f"{name} is paused. Resume it with: uttu schedule resume {name}")


def resume(ctx: typer.Context, name: ScheduleName) -> None:
    """Resume a schedule from its next time on. Runs that were due meanwhile are not made up for."""
    with open_catalog(ctx) as book:
        kept = book.resume(name)
    print(f"{name} is resumed; next {format_next(kept)}")


def run(ctx: typer.Context, name: ScheduleName) -> None:
    """Start a schedule now, in addition to its times, whatever else runs. Prints the task's id."""
    with open_catalog(ctx) as book:
        print(book.send_now(name))


def rm(ctx: typer.Context, name: ScheduleName) -> None:
    """Remove a schedule that was added with uttu schedule add. A current run continues."""
    with open_catalog(ctx) as book:
        book.remove(name)
    print(f"{name} is removed")


schedule = typer.Typer(
    help="Run tasks and crawls on a schedule. A beat starts them: uttu jobs beat, or uttu up.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


schedule.callback()(remember_app_option)


schedule.command("add")(add)
schedule.command("ls")(ls)
schedule.command("preview")(preview)
schedule.command("pause")(pause)
schedule.command("resume")(resume)
schedule.command("run")(run)
schedule.command("rm")(rm)
