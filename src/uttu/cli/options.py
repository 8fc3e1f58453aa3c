"""Options and arguments that several commands share.

Every command imports this module, so it should import little besides typer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperOption

from uttu.operations.fetch import parse_web_url

MAX_PROCESSES: Final = 256
"""Worker processes on one machine. A larger number is a typing error, and would overload the machine."""

SpiderFile = Annotated[Path, typer.Argument(help="The file with the spider.", metavar="FILE", show_default=False)]
SpiderName = Annotated[
    str, typer.Option("--spider", help="Which spider, if the file has several.", metavar="NAME", show_default=False)
]
Arguments = Annotated[
    list[str],
    typer.Option("-a", help="An argument for the spider: key=value.", metavar="KEY=VALUE", show_default=False),
]
SettingFlags = Annotated[
    list[str],
    typer.Option(
        "-s", help="A setting: key=value. See docs/reference/settings.md.", metavar="KEY=VALUE", show_default=False
    ),
]


def _check_crawl_name(given: str) -> str:
    from uttu.errors import ConfigError
    from uttu.model.crawl import check_crawl_name

    try:
        if given:
            check_crawl_name(given)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    return given


CrawlName = Annotated[
    str,
    typer.Option(
        "--crawl",
        help="The crawl's name, instead of the spider's.",
        metavar="NAME",
        show_default=False,
        callback=_check_crawl_name,
    ),
]
AppModule = Annotated[
    str,
    typer.Option(
        "-A",
        "--app",
        metavar="MODULE",
        show_default=False,
        help="A module with an app of its own; the app of this folder without it.",
    ),
]
FrontierUrl = Annotated[
    str,
    typer.Option(
        "--frontier",
        metavar="URL",
        show_default=False,
        help="Where crawls are kept: sqlite:FOLDER, redis://HOST … The folder .uttu here without it.",
    ),
]
BusUrl = Annotated[
    str,
    typer.Option(
        "--bus",
        metavar="URL",
        show_default=False,
        help="The message broker: redis://HOST, amqp://HOST, kafka://HOST … The setting bus without it.",
    ),
]
GroupName = Annotated[str, typer.Argument(help="A group of subscribers.", metavar="GROUP", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def parse_pairs(given: Sequence[str], flag: str) -> dict[str, str]:
    """``key=value`` strings as a dict.

    :raises typer.BadParameter: a string has another form.
    """
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{flag} {text}: write it as key=value")
        found[key.strip()] = value
    return found


def parse_url_argument(text: str) -> str:
    """The canonical URL of a command-line argument.

    :raises typer.BadParameter: ``text`` is not a web URL.
    """
    try:
        return parse_web_url(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def find_operator() -> str:
    """The name of the user who types the command, for the history of a crawl; empty if it is not known."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


_WHICH = "A crawl, or a spider file; the latest without it."
WhichCrawl = Annotated[str, typer.Argument(help=_WHICH, metavar="CRAWL", show_default=False)]
GivenCrawl = Annotated[str, typer.Argument(help="A crawl, or a spider file.", metavar="CRAWL", show_default=False)]
WhichCrawlOption = Annotated[str, typer.Option("--crawl", help=_WHICH, metavar="CRAWL", show_default=False)]
DeadKind = Annotated[
    str, typer.Option(help="Only dead letters of this kind: http, handler …", metavar="KIND", show_default=False)
]
DeadMessage = Annotated[
    str,
    typer.Option(help="Only dead letters of the group with this message.", metavar="MESSAGE", show_default=False),
]
PageTarget = Annotated[
    list[str],
    typer.Argument(help="A URL, or a curl command as browsers copy it.", metavar="URL|CURL", show_default=False),
]


class LoggedCommand(TyperCommand):
    """A command with the log options. They apply to this process and to those that it starts."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.params += [
            TyperOption(
                param_decls=["-v", "--verbose"],
                count=True,
                default=0,
                help="Log changes of state; -vv: each page, too.",
            ),
            TyperOption(
                param_decls=["--log-level"],
                metavar="LEVEL",
                default="",
                help="What to log: debug, info, warning, error or critical.",
            ),
            TyperOption(
                param_decls=["--log-file"], metavar="FILE", default="", help="Append the log to FILE, from info on."
            ),
            TyperOption(
                param_decls=["--log-format"], metavar="FORMAT", default="", help="text, or json: one object per line."
            ),
        ]

    def invoke(self, ctx: Any) -> Any:
        given = ctx.params
        choice = [given.pop(name) for name in ("log_level", "log_file", "log_format", "verbose")]
        if any(choice):
            from uttu.runtime.logs import choose

            choose(*choice)
        return super().invoke(ctx)


class CurlCommand(LoggedCommand):
    """Passes everything from the word ``curl`` on to curl, although it looks like our own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "curl" in args and "--" not in args:
            start = args.index("curl")
            args = [*args[:start], "--", *args[start:]]
        return super().parse_args(ctx, args)
