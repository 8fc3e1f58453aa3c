"""``weft schedule pause``: let a schedule rest."""

from __future__ import annotations

import typer

from weft.cli.schedule_book import Name


def pause(ctx: typer.Context, name: Name) -> None:
    """Start it no more, until weft schedule resume. What runs now goes on."""
    import msgspec

    from weft.cli.schedule_book import opened

    with opened(ctx) as book:
        book.change(name, lambda kept: msgspec.structs.replace(kept.state, paused=True))
    print(f"{name} is paused. Go on with: weft schedule resume {name}")
