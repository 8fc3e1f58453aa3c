"""``weft schedule run``: start it now."""

from __future__ import annotations

import typer

from weft.cli.schedule_book import Name


def run(ctx: typer.Context, name: Name) -> None:
    """Start it once more, now, whatever else runs; its times stay as they are. Prints the task's id."""
    from weft.cli.jobs_celery import check, mapped
    from weft.cli.schedule_book import opened
    from weft.errors import BusUnavailable
    from weft.jobs.schedules.sending import BrokerAway, send

    with opened(ctx) as book:
        entry = book.find(name).entry
        book.app.loader.import_default_modules()
        check(book.app)
        try:
            with mapped(book.app):
                print(send(book.app, entry))
        except BrokerAway as error:
            raise BusUnavailable(str(error)) from error
