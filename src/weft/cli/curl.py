"""Commands that take a pasted curl command as it stands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

Target = Annotated[
    list[str], typer.Argument(help="A URL, or a curl command as browsers copy it.", metavar="URL|CURL", show_default=False)
]  # fmt: skip


class CurlCommand(TyperCommand):
    """Everything from the word ``curl`` on belongs to curl, although it looks like options of ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "curl" in args and "--" not in args:
            start = args.index("curl")
            args = [*args[:start], "--", *args[start:]]
        return super().parse_args(ctx, args)
