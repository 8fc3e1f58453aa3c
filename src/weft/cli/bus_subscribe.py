"""``weft bus subscribe``: print messages as they come."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import BusUrl, pairs


def subscribe(
    topics: Annotated[
        list[str],
        typer.Argument(help="What to take; * stands for one word, # for any number.", metavar="TOPIC..."),
    ],
    group: Annotated[
        str,
        typer.Option(
            help="Share with the others of this group, and find what came while nobody listened.", metavar="GROUP"
        ),
    ] = "",
    where: Annotated[
        list[str],
        typer.Option(help="Only with this header. Can be repeated.", metavar="NAME=VALUE", show_default=False),
    ] = [],  # noqa: B006
    any_: Annotated[bool, typer.Option("--any", help="With one of the headers, not all of them.")] = False,
    count: Annotated[
        int | None,
        typer.Option(help="End after so many; 0 only makes the group.", metavar="N", min=0, show_default=False),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="End after so many seconds.", metavar="SECONDS", min=0, show_default=False)
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="A new group starts at the earliest message that is kept.")
    ] = False,
    prefetch: Annotated[int, typer.Option(help="How many to hold at most.", metavar="N", min=1)] = 500,
    bus: BusUrl = "",
) -> None:  # fmt: skip
    """Print each message as a line of JSON; it is acknowledged once it is printed. Ctrl-C ends."""
    import asyncio

    from weft.bus.base import Interest, Where
    from weft.cli.bus_printing import print_messages

    headers = pairs(where, "--where")
    if any_ and not headers:
        raise typer.BadParameter("--any says how --where is meant; give that, too")
    try:
        interest = Interest(
            topics=tuple(topics),
            group=group,
            where=Where(headers, any=any_) if headers else None,
            prefetch=prefetch if count is None else min(prefetch, max(count, 1)),
            # One by one where not all may be taken: what was printed is acknowledged, and nothing else.
            batch=100 if count is None else 1,
            start="earliest" if from_start else "latest",
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    asyncio.run(print_messages(bus, interest, count, seconds))
