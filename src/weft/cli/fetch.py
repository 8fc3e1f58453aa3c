"""``weft fetch``: one page, fetched as a crawl would."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.options import AsJson, SettingFlags, pairs
from weft.cli.targets import PageTarget


def fetch(
    target: PageTarget,
    settings: SettingFlags = [],  # noqa: B006
    headers: Annotated[bool, typer.Option("--headers", help="Show the response's headers, too.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the body there.", metavar="FILE", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch one page with the crawler's own fetcher; its body goes to standard output.

    Redirects are followed, robots.txt is not asked. Exits with 1 if the status is not 2xx.
    """
    import asyncio

    from weft import assembly, config, launch
    from weft.cli import answer
    from weft.cli.exits import FAILED
    from weft.cli.single import close_and_rest, fetch_following, request_of
    from weft.model import Response

    request = request_of(target)
    chosen = config.load({}, pairs(settings, "-s"))

    async def run() -> Response:
        fetcher = assembly.fetcher_for(chosen, launch.FOLDER)
        try:
            return await fetch_following(fetcher, request, chosen, answer.say_hop)
        finally:
            await close_and_rest(fetcher)

    response = asyncio.run(run())
    answer.say_status(response)
    if headers:
        answer.say_headers(response)
    if output is not None:
        answer.save(response, output)
    if as_json:
        answer.print_data(response)
    elif output is None:
        answer.print_body(response)
    if not response.ok:
        raise typer.Exit(FAILED)
