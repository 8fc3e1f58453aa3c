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
    from weft.cli import one_response
    from weft.cli.exits import FAILED
    from weft.cli.one_request import fetch_following, request_of
    from weft.model import Response

    request = request_of(target)
    chosen = config.load({}, pairs(settings, "-s"))

    async def run() -> Response:
        fetcher = assembly.fetcher_for(chosen, launch.FOLDER)
        try:
            return await fetch_following(fetcher, request, chosen, one_response.say_hop)
        finally:
            await fetcher.close()

    response = asyncio.run(run())
    one_response.say_status(response)
    if headers:
        one_response.say_headers(response)
    if output is not None:
        one_response.save(response, output)
    if as_json:
        one_response.print_data(response)
    elif output is None:
        one_response.print_body(response)
    if not response.ok:
        raise typer.Exit(FAILED)
