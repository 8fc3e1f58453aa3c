"""``weft worker``: take part in a crawl that another process started."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import Arguments, CrawlName, FrontierUrl, SettingFlags, SpiderFile, SpiderName, pairs


def worker(
    file: SpiderFile,
    arguments: Arguments = [],  # noqa: B006
    settings: SettingFlags = [],  # noqa: B006
    spider: SpiderName = "",
    name: CrawlName = "",
    frontier: FrontierUrl = "",
    tied: Annotated[bool, typer.Option("--tied", hidden=True, help="End when standard input closes.")] = False,
) -> None:
    """Take part in a crawl of FILE that is running: on this machine or, with a shared frontier, anywhere."""
    from weft.cli.foreground import Plan, run_worker

    flags: dict[str, object] = dict(pairs(settings, "-s"))
    if frontier:
        flags["frontier"] = frontier
    plan = Plan(file=file, spider_name=spider, arguments=pairs(arguments, "-a"), flags=flags, crawl=name)
    raise typer.Exit(run_worker(plan, tied=tied))
