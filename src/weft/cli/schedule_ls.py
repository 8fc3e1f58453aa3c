"""``weft schedule ls``: what runs when, and how it stands."""

from __future__ import annotations

import typer

from weft.cli.options import AsJson


def ls(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the schedules: in code, in weft.toml, and those that were added."""
    from weft.cli.schedule_book import opened
    from weft.cli.schedule_view import rows, show
    from weft.cli.words import print_json, say

    with opened(ctx) as book:
        found = rows(book)
        if as_json:
            print_json(found)
        else:
            show(found)
        for text in book.wrong:
            say(f"weft: left out: {text}")
