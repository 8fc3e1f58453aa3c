"""What a command is about: a crawl, or a page. Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

_WHICH = "A crawl, or a spider file; the latest without it."
WhichCrawl = Annotated[str, typer.Argument(help=_WHICH, metavar="CRAWL", show_default=False)]
GivenCrawl = Annotated[str, typer.Argument(help="A crawl, or a spider file.", metavar="CRAWL", show_default=False)]
WhichCrawlOption = Annotated[str, typer.Option("--crawl", help=_WHICH, metavar="CRAWL", show_default=False)]
DeadKind = Annotated[
    str, typer.Option(help="Only dead letters of this kind: http, handler …", metavar="KIND", show_default=False)
]
PageTarget = Annotated[
    list[str],
    typer.Argument(help="A URL, or a curl command as browsers copy it.", metavar="URL|CURL", show_default=False),
]


class CurlCommand(TyperCommand):
    """Everything from the word ``curl`` on belongs to curl, although it looks like options of ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "curl" in args and "--" not in args:
            start = args.index("curl")
            args = [*args[:start], "--", *args[start:]]
        return super().parse_args(ctx, args)
