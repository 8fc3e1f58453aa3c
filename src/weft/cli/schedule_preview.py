"""``weft schedule preview``: the next times of a schedule, or of a crontab line that one is about to use."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import AsJson


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
) -> None:  # fmt: skip
    """Print when it is due, on the clocks of its time zone."""
    from itertools import islice

    from weft.cli.jobs_celery import app_of
    from weft.cli.schedule_book import now, opened
    from weft.cli.words import ago, print_json
    from weft.errors import ConfigError
    from weft.jobs.schedules import Cron
    from weft.jobs.schedules.when import When, due_after, dues, zone

    when: When
    if len(what.split()) > 1 or what.startswith("@"):
        when = Cron(what, timezone or str(app_of(ctx).conf.timezone or "UTC"))
        first = due_after(when, now())
    else:
        with opened(ctx) as book:
            kept = book.find(what)
        when, first = kept.entry.when, kept.state.next
        if timezone:
            if not isinstance(when, Cron):
                raise ConfigError("--timezone is for crontab lines")
            when = Cron(when.line, timezone)
            first = due_after(when, now())
        if first <= now():
            first = due_after(when, now())
    clock = zone(when.timezone if isinstance(when, Cron) else "UTC")
    last = first.replace(year=first.year + 100)
    found = [moment.astimezone(clock) for moment in islice(dues(when, first, last), count)]
    if as_json:
        print_json([moment.isoformat() for moment in found])
        return
    for moment in found:
        print(f"{moment:%a} {moment.isoformat(' ', 'seconds')}  {ago((now() - moment).total_seconds())}")
