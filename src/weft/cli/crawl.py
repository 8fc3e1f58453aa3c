"""``weft crawl``: run a spider to its end, or go on where it was cut short."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.options import (
    MOST_PROCESSES,
    Arguments,
    AsJson,
    CrawlName,
    FrontierUrl,
    SettingFlags,
    SpiderFile,
    SpiderName,
    pairs,
)


def crawl(
    file: SpiderFile,
    output: Annotated[
        list[str],
        typer.Option(
            "-o", "--output", metavar="FILE", show_default=False,
            help="Where items go: .jsonl, .json, .csv, .parquet, .db, - for standard output, or a topic of a message "
            "broker: redis://…?topic=T. Can be repeated.",
        ),
    ] = [],  # noqa: B006
    arguments: Arguments = [],  # noqa: B006
    settings: SettingFlags = [],  # noqa: B006
    limit: Annotated[int, typer.Option(help="Stop after so many pages.", min=0, show_default=False)] = 0,
    max_time: Annotated[float, typer.Option(help="Stop after so many seconds.", min=0, show_default=False)] = 0,
    workers: Annotated[int, typer.Option(help="Processes on this machine.", min=1, max=MOST_PROCESSES)] = 1,
    feed: Annotated[
        str,
        typer.Option(
            metavar="URL", show_default=False,
            help="Take start URLs from a topic of a message broker, and wait for more: redis://HOST?topic=T.",
        ),
    ] = "",
    feed_idle: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, show_default=False, help="End when nothing was to do, or came, for so long."
        ),
    ] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start again, even if the last crawl did not finish.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a crawl that ended at a limit.")] = False,
    cache: Annotated[bool, typer.Option("--cache", help="Keep responses, replay them: for writing spiders.")] = False,
    fail_on: Annotated[
        list[str],
        typer.Option(
            metavar="CONDITION", show_default=False,
            help="Exit with 5 if so at the end, e.g. 'error_rate>0.05' or 'items<100'.",
        ),
    ] = [],  # noqa: B006
    spider: SpiderName = "",
    name: CrawlName = "",
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Run the spider in FILE. A crawl that was killed or stopped is resumed by the same command."""
    from weft.cli.conditions import parse_condition
    from weft.cli.foreground import Plan, run_plan

    flags: dict[str, object] = dict(pairs(settings, "-s"))
    if limit:
        flags["max_pages"] = limit
    if max_time:
        flags["max_seconds"] = max_time
    if feed:
        flags["feed"] = feed
    if feed_idle:
        flags["feed_idle"] = feed_idle
    if frontier:
        flags["frontier"] = frontier
    if cache:
        flags["cache"] = True
    plan = Plan(
        file=Path(file),
        spider_name=spider,
        arguments=pairs(arguments, "-a"),
        flags=flags,
        outputs=tuple(output),
        workers=workers,
        fresh=fresh,
        resume=resume,
        crawl=name,
        conditions=tuple(parse_condition(text) for text in fail_on),
        as_json=as_json,
    )
    raise typer.Exit(run_plan(plan))
