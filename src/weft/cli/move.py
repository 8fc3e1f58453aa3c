"""``weft move``: a crawl from one frontier to another."""

from __future__ import annotations

from typing import Annotated

import typer

_PLACE = "A frontier's URL, or a folder whose .weft it is."


def move(
    source: Annotated[str, typer.Argument(help=f"{_PLACE}", metavar="FROM", show_default=False)],
    target: Annotated[str, typer.Argument(help="The same.", metavar="TO", show_default=False)],
    crawl: Annotated[
        str, typer.Option("--crawl", help="Which crawl, if there are several.", metavar="NAME", show_default=False)
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Forget the crawl of this name that is at TO.")] = False,
) -> None:
    """Move a crawl that is paused or stopped, with everything it has, to go on elsewhere."""
    import asyncio

    from weft.cli.moving import move_crawl

    print(asyncio.run(move_crawl(source, target, crawl, replace=replace)))
