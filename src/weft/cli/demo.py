"""``weft demo``: a crawl of a site on this machine, killed half-way and resumed."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import MOST_PROCESSES, AsJson


def demo(
    pages: Annotated[int, typer.Option(help="How large the site is.", min=100)] = 2000,
    workers: Annotated[int, typer.Option(help="Processes that crawl it.", min=1, max=MOST_PROCESSES)] = 2,
    as_json: AsJson = False,
) -> None:
    """Watch a crawl: of a site on this machine, killed half-way and resumed. Takes a quarter of a minute."""
    from weft.cli.demo_show import Show

    raise typer.Exit(Show(pages, workers, quiet=as_json).run())
