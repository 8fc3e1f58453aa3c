"""``uttu crawl``, ``uttu worker`` and ``uttu spiders``: run a spider to its end, join a running crawl, list spiders.

The process that the user starts only parses the options and becomes the guardian (:mod:`uttu.runtime.guardian`). Its
child imports what a crawl needs and does the work (:mod:`uttu.cli.foreground`). If a handler crashes the child, the
guardian starts another one and passes on ``took_down``, the pages that crashed it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uttu import cli
from uttu.cli.options import (
    MAX_PROCESSES,
    Arguments,
    AsJson,
    CrawlName,
    FrontierUrl,
    SettingFlags,
    SpiderFile,
    SpiderName,
    parse_pairs,
)

if TYPE_CHECKING:
    from uttu.runtime.guardian import CrashedPage


def crawl(
    file: SpiderFile,
    output: Annotated[
        list[str],
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            show_default=False,
            help="Where items go: .jsonl, .json, .csv, .parquet, .db, - for standard output, or a topic of a message "
            "broker: redis://…?topic=T. Can be repeated.",
        ),
    ] = [],  # noqa: B006
    arguments: Arguments = [],  # noqa: B006
    settings: SettingFlags = [],  # noqa: B006
    limit: Annotated[int, typer.Option(help="Stop after so many pages.", min=0, show_default=False)] = 0,
    max_time: Annotated[float, typer.Option(help="Stop after so many seconds.", min=0, show_default=False)] = 0,
    workers: Annotated[int, typer.Option(help="Processes on this machine.", min=1, max=MAX_PROCESSES)] = 1,
    feed: Annotated[
        str,
        typer.Option(
            metavar="URL",
            show_default=False,
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
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace output files that another program wrote.")
    ] = False,
    cache: Annotated[bool, typer.Option("--cache", help="Keep responses, replay them: for writing spiders.")] = False,
    background: Annotated[
        bool, typer.Option("--background", help="Return at once; the crawl goes on, and writes its log to .uttu/logs.")
    ] = False,
    fail_on: Annotated[
        list[str],
        typer.Option(
            metavar="CONDITION",
            show_default=False,
            help="Exit with 5 if so at the end, e.g. 'error_rate>0.05' or 'items<100'.",
        ),
    ] = [],  # noqa: B006
    spider: SpiderName = "",
    name: CrawlName = "",
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Run the spider in FILE. A crawl that was killed or stopped is resumed by the same command."""
    from uttu.cli.exit_codes import run_and_exit
    from uttu.policy.conditions import parse_condition
    from uttu.runtime.guardian import run_guarded

    flags: dict[str, object] = dict(parse_pairs(settings, "-s"))
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
    conditions = tuple(parse_condition(text) for text in fail_on)
    given = parse_pairs(arguments, "-a")
    if background:
        if conditions or as_json or "-" in output:
            raise typer.BadParameter("--fail-on, --json and -o - are about the end of a crawl in the foreground")
        _start_in_background(file, spider, given, flags, output, workers, name, fresh, resume, overwrite)
        return

    def work(took_down: tuple[CrashedPage, ...], spent: float) -> int:
        from uttu.cli.foreground import ForegroundSpec, run_crawl

        plan = ForegroundSpec(
            file=Path(file),
            spider_name=spider,
            arguments=given,
            flags=flags,
            outputs=tuple(output),
            workers=workers,
            fresh=fresh and not spent,
            resume=resume,
            overwrite=overwrite,
            crawl=name,
            conditions=conditions,
            as_json=as_json,
        )
        return run_crawl(plan, took_down, spent)

    # Several workers are processes already, and this one is their guardian.
    raise typer.Exit(run_guarded(work, run_and_exit) if workers == 1 and cli.is_program else work((), 0.0))


def _start_in_background(
    file: Path,
    spider: str,
    arguments: dict[str, str],
    flags: dict[str, object],
    outputs: list[str],
    workers: int,
    name: str,
    fresh: bool,
    resume: bool,
    overwrite: bool,
) -> None:
    import asyncio

    from uttu.operations.spiders import StartRequest, start_crawl

    request = StartRequest(
        file=str(file),
        spider=spider,
        arguments=arguments,
        settings={key: str(value) for key, value in flags.items()},
        outputs=tuple(outputs),
        workers=workers,
        crawl=name,
        fresh=fresh,
        resume=resume,
        overwrite=overwrite,
    )
    started = asyncio.run(start_crawl(request))
    print(f"{started.crawl} runs in the background as process {started.pid}. Watch it with: uttu top {started.crawl}")
    print(f"Its log is {started.log}")


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
    from uttu.cli.exit_codes import run_and_exit
    from uttu.runtime.guardian import run_guarded

    flags: dict[str, object] = dict(parse_pairs(settings, "-s"))
    if frontier:
        flags["frontier"] = frontier
    given = parse_pairs(arguments, "-a")

    def work(took_down: tuple[CrashedPage, ...], spent: float) -> int:
        from uttu.cli.foreground import ForegroundSpec, run_worker

        plan = ForegroundSpec(file=file, spider_name=spider, arguments=given, flags=flags, crawl=name)
        return run_worker(plan, took_down, tied=tied)

    # One that is tied has a parent that looks after it.
    raise typer.Exit(run_guarded(work, run_and_exit) if cli.is_program and not tied else work((), 0.0))


def spiders(as_json: AsJson = False) -> None:
    """List the spiders in the Python files of this folder, with the arguments they take."""
    import asyncio

    from uttu.cli.output import Screen, print_json, say
    from uttu.operations.spiders import find_spiders

    found = asyncio.run(find_spiders())
    if as_json:
        print_json(found)
        return
    rows = [
        (each.file, each.name, " ".join(f"{arg.name}={arg.default}" for arg in each.arguments), " ".join(each.start))
        for each in found
        if not each.error
    ]
    if rows:
        Screen().table(("FILE", "SPIDER", "ARGUMENTS", "START"), rows)
    for each in found:
        if each.error:
            say(f"uttu: {each.file}: {each.error}")
    if not found:
        say("There is no spider in this folder. Write one: uttu new NAME URL")
