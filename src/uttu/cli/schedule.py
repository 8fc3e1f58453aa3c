"""``uttu schedule``: tasks and crawls that run repeatedly.

The commands work on the schedules in the store, and on those in code or ``uttu.toml`` that no beat has copied to the
store yet. A beat (``uttu jobs beat``) starts what is due. Commands change the store; only ``run`` sends a task itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uttu.cli.jobs import load_app
from uttu.errors import ConfigError
from uttu.jobs.schedules.catalog import ScheduleCatalog

if TYPE_CHECKING:
    from uttu.jobs.schedules.schedule import ScheduleState, StoredSchedule
from pathlib import Path

import msgspec

from uttu.cli.jobs import remember_app_option
from uttu.cli.options import Arguments, AsJson, SettingFlags, SpiderName, parse_pairs
from uttu.cli.output import Screen, format_zoned
from uttu.jobs.confinement import check_crawl
from uttu.jobs.schedules.schedule import Schedule, ScheduleState, StoredSchedule
from uttu.jobs.schedules.triggers import Cron, load_zone

ScheduleName = Annotated[str, typer.Argument(help="The schedule's name.", metavar="NAME", show_default=False)]


@contextlib.contextmanager
def open_catalog(ctx: typer.Context) -> Iterator[ScheduleCatalog]:
    """The schedules of the app that the command uses.

    :raises ConfigError: the app cannot be loaded.
    :raises StoreError: the store is not reachable.
    """
    from uttu.jobs.schedules import open_app_store

    app = load_app(ctx)
    store = open_app_store(app)
    try:
        yield ScheduleCatalog(app, store)
    finally:
        store.close()


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
        for word, count in (("left out while the run before was not over", row["skipped"]), ("missed", row["missed"])):
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


def format_next(entry: Schedule, state: ScheduleState) -> str:
    """The next time of a schedule, as in the table."""
    return format_zoned(state.next, load_zone(entry.when.timezone) if isinstance(entry.when, Cron) else None)


CRAWL = "uttu.crawl"


def add(
    ctx: typer.Context,
    name: ScheduleName,
    task: Annotated[str, typer.Option(help="The task's name.", metavar="TASK", show_default=False)] = "",
    crawl: Annotated[
        Path | None,
        typer.Option(help="Crawl this spider file, instead of a task.", metavar="FILE", show_default=False),
    ] = None,
    every: Annotated[
        float | None, typer.Option(help="Every so many seconds.", metavar="SECONDS", show_default=False)
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
        str, typer.Option(help="Of the crontab; jobs.timezone without it.", metavar="ZONE", show_default=False)
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
    fresh: Annotated[bool, typer.Option("--fresh", help="Start the crawl again, rather than go on.")] = False,
    queue: Annotated[str, typer.Option(help="Instead of the task's own.", metavar="QUEUE", show_default=False)] = "",
    priority: Annotated[int | None, typer.Option(help="0 to 9, 9 first.", min=0, max=9, show_default=False)] = None,
    expires: Annotated[
        float | None,
        typer.Option(help="Drop it if no worker began it by then.", metavar="SECONDS", show_default=False),
    ] = None,
    overlap: Annotated[
        str,
        typer.Option(
            help="While the run before is not over: skip, queue or allow. A crawl skips, a task allows.",
            metavar="WORD",
            show_default=False,
        ),
    ] = "",
    grace: Annotated[
        float, typer.Option(help="Run it up to so late, when no beat ran in time; inf is always.", metavar="SECONDS")
    ] = 3600.0,
    replace: Annotated[bool, typer.Option("--replace", help="Also if there is one of that name.")] = False,
    remote: Annotated[bool, typer.Option("--remote", help="Only workers know the task; don't look here.")] = False,
) -> None:
    """Run a task or a crawl repeatedly, from now on."""
    from uttu.jobs.schedules import parse_schedule
    from uttu.jobs.schedules.catalog import utc_now
    from uttu.jobs.schedules.schedule import create_state as new
    from uttu.jobs.schedules.schedule import replace_state
    from uttu.operations.jobs import check_task

    if bool(task) == (crawl is not None):
        raise typer.BadParameter("give either --task TASK or --crawl FILE")
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
        raise typer.BadParameter("-o, -a, -s, --spider, --workers and --fresh are for --crawl FILE")
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
        entry = parse_schedule(name, table, "command", str(book.app.conf.timezone or "UTC"))
        if not remote:
            check_task(book.app, entry.task)
        if crawl is not None:
            check_crawl(book.app, str(crawl), output, table["kwargs"].get("settings", {}))
        former = book.all.get(name)
        if former is not None and former.entry.source != "command":
            raise ConfigError(
                f"schedule {name!r} comes from {former.entry.source}: change it there, or take another name"
            )
        if former is None:
            state = new(entry, utc_now())
            done = book.store.put(entry, state)
        else:
            state = replace_state(former, entry, utc_now())
            done = replace and book.store.put(entry, state, replace=True)
        if not done:
            raise ConfigError(f"there is a schedule {name!r} already: replace it with --replace, or take another name")
        if crawl is not None and not (Path(book.app.folder) / crawl).exists():
            typer.echo(f"uttu: there is no {crawl} here; workers must have it", err=True)
    print(f"{name}: {entry.task} {entry.when}; next {format_next(entry, state)}")


def _parse_json(text: str, kind: type[Any], flag: str) -> Any:

    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise typer.BadParameter(f"{text!r} is not {flag}: {error}") from error


def ls(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the schedules: from code, from uttu.toml, and added ones."""
    from uttu.cli.output import print_json, say
    from uttu.jobs.schedules.catalog import find_unknown_tasks, list_rows

    with open_catalog(ctx) as book:
        found = list_rows(book)
        if as_json:
            print_json(found)
        else:
            show_schedules(found)
        for text in book.wrong:
            say(f"uttu: left out: {text}")
        for text in find_unknown_tasks(book.app, [kept.entry for kept in book.all.values()]):
            say(f"uttu: {text}")


def preview(
    ctx: typer.Context,
    what: Annotated[
        str, typer.Argument(help="A schedule, or a crontab line.", metavar="NAME|LINE", show_default=False)
    ],
    count: Annotated[int, typer.Option("-n", "--count", help="So many of them.", min=1, max=10_000)] = 5,
    timezone: Annotated[
        str, typer.Option(help="Of the line; jobs.timezone without it.", metavar="ZONE", show_default=False)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Print the next times of a schedule, in its time zone."""
    from itertools import islice

    from uttu.cli.jobs import load_app
    from uttu.cli.output import format_age, print_json
    from uttu.jobs.schedules import Cron
    from uttu.jobs.schedules.catalog import utc_now
    from uttu.jobs.schedules.triggers import Trigger, load_zone, next_time, times_between

    when: Trigger
    if len(what.split()) > 1 or what.startswith("@"):
        when = Cron(what, timezone or str(load_app(ctx).conf.timezone or "UTC"))
        first = next_time(when, utc_now())
    else:
        with open_catalog(ctx) as book:
            kept = book.find(what)
        when, first = kept.entry.when, kept.state.next
        if timezone:
            if not isinstance(when, Cron):
                raise ConfigError("--timezone is for crontab lines")
            when = Cron(when.line, timezone)
            first = next_time(when, utc_now())
        if first <= utc_now():
            first = next_time(when, utc_now())
    clock = load_zone(when.timezone if isinstance(when, Cron) else "UTC")
    last = first.replace(year=first.year + 100)
    found = [moment.astimezone(clock) for moment in islice(times_between(when, first, last), count)]
    if as_json:
        print_json([moment.isoformat() for moment in found])
        return
    for moment in found:
        print(f"{moment:%a} {moment.isoformat(' ', 'seconds')}  {format_age((utc_now() - moment).total_seconds())}")


def pause(ctx: typer.Context, name: ScheduleName) -> None:
    """Pause a schedule until uttu schedule resume. A current run continues."""

    with open_catalog(ctx) as book:
        book.change(name, lambda kept: msgspec.structs.replace(kept.state, paused=True))
    print(f"{name} is paused. Go on with: uttu schedule resume {name}")


def resume(ctx: typer.Context, name: ScheduleName) -> None:
    """Resume a schedule from its next time on. Runs that were due meanwhile are not made up for."""

    from uttu.jobs.schedules.catalog import utc_now
    from uttu.jobs.schedules.schedule import create_state

    def resumed(kept: StoredSchedule) -> ScheduleState:
        # A time in the past would be made up for. One in the far future comes from a wrong clock.
        return msgspec.structs.replace(kept.state, paused=False, note="", next=create_state(kept.entry, utc_now()).next)

    with open_catalog(ctx) as book:
        state = book.change(name, resumed)
        entry = book.find(name).entry
    print(f"{name} goes on; next {format_next(entry, state)}")


def run(ctx: typer.Context, name: ScheduleName) -> None:
    """Start a schedule now, in addition to its times, whatever else runs. Prints the task's id."""
    from uttu.errors import BusUnavailable
    from uttu.jobs.schedules.beat import BrokerAway, send
    from uttu.operations.jobs import check_broker, map_driver_errors

    with open_catalog(ctx) as book:
        entry = book.find(name).entry
        book.app.loader.import_default_modules()
        check_broker(book.app)
        try:
            with map_driver_errors(book.app):
                print(send(book.app, entry))
        except BrokerAway as error:
            raise BusUnavailable(str(error)) from error


def rm(ctx: typer.Context, name: ScheduleName) -> None:
    """Remove a schedule that was added with uttu schedule add. A current run continues."""

    with open_catalog(ctx) as book:
        source = book.find(name).entry.source
        if source != "command":
            raise ConfigError(
                f"schedule {name!r} comes from {source}, and would come back: take it out there, or let it rest "
                f"with uttu schedule pause {name}"
            )
        book.store.remove(name)
    print(f"{name} is removed")


schedule = typer.Typer(
    help="Have tasks and crawls run again and again. A beat starts them: uttu jobs beat, or uttu up.",
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
