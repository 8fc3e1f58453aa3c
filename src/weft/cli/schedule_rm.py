"""``weft schedule rm``: remove a schedule."""

from __future__ import annotations

import typer

from weft.cli.schedule_book import Name


def rm(ctx: typer.Context, name: Name) -> None:
    """Remove a schedule that was added with weft schedule add. What runs now goes on."""
    from weft.cli.schedule_book import opened
    from weft.errors import ConfigError

    with opened(ctx) as book:
        source = book.find(name).entry.source
        if source != "command":
            raise ConfigError(
                f"schedule {name!r} comes from {source}, and would come back: take it out there, or let it rest "
                f"with weft schedule pause {name}"
            )
        book.store.remove(name)
    print(f"{name} is removed")
