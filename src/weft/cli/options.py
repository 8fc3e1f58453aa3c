"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

MOST_PROCESSES: Final = 256
"""On one machine: more are a slip of the finger, and would take it down."""

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


def _crawl_name(given: str) -> str:
    from weft.errors import ConfigError
    from weft.frontier.depot import check_name

    try:
        if given:
            check_name(given)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    return given


CrawlName = Annotated[
    str,
    typer.Option(
        "--crawl", help="The crawl's name, instead of the spider's.", metavar="NAME", show_default=False,
        callback=_crawl_name,
    ),
]  # fmt: skip
AppModule = Annotated[
    str,
    typer.Option(
        "-A", "--app", metavar="MODULE", show_default=False,
        help="A module with an app of its own; the app of this folder without it.",
    ),
]  # fmt: skip
FrontierUrl = Annotated[
    str,
    typer.Option(
        "--frontier", metavar="URL", show_default=False,
        help="Where crawls are kept: sqlite:FOLDER, redis://HOST … The folder .weft here without it.",
    ),
]  # fmt: skip
BusUrl = Annotated[
    str,
    typer.Option(
        "--bus", metavar="URL", show_default=False,
        help="The message broker: redis://HOST, amqp://HOST, kafka://HOST … The setting bus without it.",
    ),
]  # fmt: skip
GroupName = Annotated[str, typer.Argument(help="A group of subscribers.", metavar="GROUP", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def pairs(given: Sequence[str], flag: str) -> dict[str, str]:
    """``key=value`` strings as a dict.

    Wrong ones end the program as wrong usage.
    """
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{flag} {text}: write it as key=value")
        found[key.strip()] = value
    return found
