"""``weft push``: more start URLs for a crawl."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import AsJson, FrontierUrl
from weft.cli.targets import GivenCrawl


def push(
    crawl: GivenCrawl,
    urls: Annotated[list[str], typer.Argument(help="URLs to start from.", metavar="URL...", show_default=False)] = [],  # noqa: B006
    file: Annotated[
        str,
        typer.Option(
            "-f", "--file", metavar="FILE", show_default=False,
            help="A file with a URL, or a request as a JSON object, on each line; - for standard input.",
        ),
    ] = "",
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Add start URLs to a crawl. Those that it knows already are left out.

    Exits with 1 if some are no URLs of the web; the others are added.
    """
    import asyncio

    from weft.cli.exits import FAILED
    from weft.cli.pushing import push_all
    from weft.cli.words import number, print_json, say

    if not (urls or file):
        raise typer.BadParameter("give URLs, or a file of them with -f")
    pushed = asyncio.run(push_all(crawl, frontier, urls, file))
    if as_json:
        print_json({"crawl": pushed.crawl, "new": pushed.new, "known": pushed.known, "bad": pushed.bad})
    else:
        known = f", {pushed.known:,} were there already" if pushed.known else ""
        print(f"{number(pushed.new, 'new page')} for {pushed.crawl}{known}; {pushed.then}")
    if pushed.bad:
        say(f"{number(pushed.bad, 'entry', 'entries')} could not be used")
        raise typer.Exit(FAILED)
