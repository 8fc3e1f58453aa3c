"""``weft schedule resume``: let a schedule go on."""

from __future__ import annotations

import typer

from weft.cli.schedule_book import Name


def resume(ctx: typer.Context, name: Name) -> None:
    """Start it again from its next time on. What was due meanwhile is not made up for."""
    import msgspec

    from weft.cli.schedule_book import now, opened
    from weft.cli.words import moment
    from weft.jobs.schedules.entry import Kept, State, fresh

    def resumed(kept: Kept) -> State:
        # A time in the past would be made up for; one far ahead was made while the clock was wrong.
        return msgspec.structs.replace(kept.state, paused=False, note="", next=fresh(kept.entry, now()).next)

    with opened(ctx) as book:
        state = book.change(name, resumed)
    print(f"{name} goes on; next {moment(state.next.timestamp())}")
