"""``weft shell``: a page in an interactive Python, to try selectors on."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import SettingFlags, pairs
from weft.cli.targets import PageTarget


def shell(
    target: PageTarget = [],  # noqa: B006
    settings: SettingFlags = [],  # noqa: B006
    code: Annotated[
        str, typer.Option("-c", help="Run this code instead, and exit.", metavar="CODE", show_default=False)
    ] = "",
    plain: Annotated[bool, typer.Option("--plain", help="Python's own shell, even if IPython is installed.")] = False,
) -> None:
    """Fetch a page and open an interactive Python with it: page.css("h1::text").get() and so on."""
    from weft import config
    from weft.cli.exits import FAILED
    from weft.cli.one_request import request_of
    from weft.cli.shell_session import Session

    if target[:1] == ["curl"] and not code and "-c" in target:
        # Its cookie jar; but whoever copies a command out of a browser has none, and means our own.
        raise typer.BadParameter("all that is behind the word curl is curl's: put -c CODE before it")
    request = request_of(target) if target else None
    with Session(config.load({}, pairs(settings, "-s"))) as session:
        if request is not None:
            session.fetch(request)
        if not code:
            session.interact(plain=plain)
        elif not session.run(code):
            raise typer.Exit(FAILED)
