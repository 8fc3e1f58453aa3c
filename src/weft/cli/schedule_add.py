"""``weft schedule add``: a schedule more, while everything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from weft.cli.options import Arguments, SettingFlags, SpiderName, pairs
from weft.cli.schedule_book import Name

CRAWL = "weft.crawl"


def add(
    ctx: typer.Context,
    name: Name,
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
            metavar="WORD", show_default=False,
        ),
    ] = "",
    grace: Annotated[
        float, typer.Option(help="Run it up to so late, when no beat ran in time; inf is always.", metavar="SECONDS")
    ] = 3600.0,
    replace: Annotated[bool, typer.Option("--replace", help="Also if there is one of that name.")] = False,
    remote: Annotated[bool, typer.Option("--remote", help="Only workers know the task; don't look here.")] = False,
) -> None:  # fmt: skip
    """Have a task or a crawl run again and again, from now on."""
    from weft.cli.jobs_call import find
    from weft.cli.schedule_book import now, opened
    from weft.cli.words import moment
    from weft.errors import ConfigError
    from weft.jobs.schedules import parse
    from weft.jobs.schedules.entry import fresh as new
    from weft.jobs.schedules.scheduler import replaced

    if bool(task) == (crawl is not None):
        raise typer.BadParameter("give either --task TASK or --crawl FILE")
    table: dict[str, Any] = {"task": task, "args": _decoded(args, list, "--args, a JSON array")}
    table["kwargs"] = _decoded(kwargs, dict, "--kwargs, a JSON object")
    if crawl is not None:
        given = {
            "output": output, "spider_name": spider, "arguments": pairs(arguments, "-a"),
            "settings": pairs(settings, "-s"), "workers": workers if workers > 1 else 0, "fresh": fresh,
        }  # fmt: skip
        table["task"], table["args"] = CRAWL, [str(crawl)]
        table["kwargs"] = {key: value for key, value in given.items() if value} | table["kwargs"]
    elif output or spider or arguments or settings or fresh or workers > 1:
        raise typer.BadParameter("-o, -a, -s, --spider, --workers and --fresh are for --crawl FILE")
    optional = {
        "every": every, "crontab": crontab, "solar": solar, "latitude": latitude, "longitude": longitude,
        "timezone": timezone or None, "queue": queue or None, "priority": priority, "expires": expires,
        "overlap": overlap or ("skip" if crawl is not None else None),
    }  # fmt: skip
    table |= {key: value for key, value in optional.items() if value is not None} | {"grace": grace}
    with opened(ctx) as book:
        entry = parse(name, table, "command", str(book.app.conf.timezone or "UTC"))
        if not remote:
            find(book.app, entry.task)
        former = book.all.get(name)
        if former is not None and former.entry.source != "command":
            raise ConfigError(
                f"schedule {name!r} comes from {former.entry.source}: change it there, or take another name"
            )
        if former is None:
            state = new(entry, now())
            done = book.store.put(entry, state)
        else:
            state = replaced(former, entry, now())
            done = replace and book.store.put(entry, state, replace=True)
        if not done:
            raise ConfigError(f"there is a schedule {name!r} already: replace it with --replace, or take another name")
        if crawl is not None and not (Path(book.app.folder) / crawl).exists():
            typer.echo(f"weft: there is no {crawl} here; workers must have it", err=True)
    print(f"{name}: {entry.task} {entry.when}; next {moment(state.next.timestamp())}")


def _decoded(text: str, kind: type[Any], flag: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise typer.BadParameter(f"{text!r} is not {flag}: {error}") from error
