"""``uttu push``, ``retry``, ``export`` and ``move``: the contents of a crawl, from start URLs to items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from uttu.cli.options import AsJson, Confined, DeadKind, FrontierUrl, GivenCrawl, WhichCrawl

if TYPE_CHECKING:
    from uttu.operations.move import Renamed


def push(
    crawl: GivenCrawl,
    urls: Annotated[list[str], typer.Argument(help="URLs to start from.", metavar="URL...", show_default=False)] = [],  # noqa: B006
    file: Annotated[
        str,
        typer.Option(
            "-f",
            "--file",
            metavar="FILE",
            show_default=False,
            help="A file with a URL, or a request as a JSON object, on each line; - for standard input.",
        ),
    ] = "",
    confined: Confined = False,
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Add start URLs to a crawl. URLs that it knows already are skipped.

    Exits with 1 if some entries are not web URLs; the others are added.
    """
    import asyncio

    from uttu.cli.output import format_count, print_json, say
    from uttu.errors import FAILED
    from uttu.operations.seeds import push_seeds

    if not (urls or file):
        raise typer.BadParameter("give URLs, or a file of them with -f")
    pushed = asyncio.run(push_seeds(crawl, frontier, urls, file, say, confined=confined))
    if as_json:
        print_json({"crawl": pushed.crawl, "new": pushed.new, "known": pushed.known, "bad": pushed.bad})
    else:
        known = f", {pushed.known:,} were there already" if pushed.known else ""
        print(f"{format_count(pushed.new, 'new page')} for {pushed.crawl}{known}; {pushed.then}")
    if pushed.bad:
        say(f"{format_count(pushed.bad, 'entry', 'entries')} could not be used")
        raise typer.Exit(FAILED)


def retry(
    crawl: WhichCrawl = "",
    kind: DeadKind = "",
    url: Annotated[str, typer.Option(help="Only this one.", metavar="URL", show_default=False)] = "",
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Queue dead letters again, as if they had never been tried; uttu status --dead lists them.

    Exits with 1 if there is no dead letter of that kind or URL.
    """
    import asyncio
    import contextlib

    from uttu.cli.options import parse_url_argument
    from uttu.cli.output import format_count, print_json, say
    from uttu.cli.views import format_kinds
    from uttu.engine import reprieve
    from uttu.errors import FAILED
    from uttu.model.crawl import CrawlState, Reason
    from uttu.operations.control import check_not_moved
    from uttu.operations.crawls import connect_configured_frontier, find_crawl, open_store, read_status

    async def revive() -> bool:
        async with connect_configured_frontier(frontier) as catalog:
            name, remark = await find_crawl(catalog, crawl)
            if remark:
                say(remark)
            async with open_store(catalog, name) as store:
                standing = await read_status(catalog, name, store)
                check_not_moved(standing)
                running = standing.alive
                # A crawl that is not running must not be started while this changes its state.
                async with contextlib.nullcontext() if running else catalog.supervise(name):
                    await reprieve.grant(store.memo)
                    revived = await store.inspector.revive(kind, wanted)
                    if revived and not running:
                        # A finished crawl would start anew; a stopped one is resumed.
                        await store.ledger.note(
                            state=CrawlState.STOPPED, reason=Reason("dead letters are back in line")
                        )
                    kinds = await store.inspector.dead_kinds()
        command = standing.command()
        if as_json:
            print_json({"crawl": name, "revived": revived, "running": running, "dead": kinds, "command": command})
        elif revived:
            then = "the running crawl takes them up" if running else f"go on with: {command}"
            print(f"{format_count(revived, 'dead letter')} back in line; {then}")
        else:
            which = f" {f'of kind {kind!r}' if kind else ''}{f'for {wanted}' if wanted else ''}" if kind or url else ""
            say(
                f"no dead letter{which}" + (f"; there are: {format_kinds(kinds)} (uttu status --dead)" if kinds else "")
            )
        return revived > 0 or not (kind or url)

    wanted = parse_url_argument(url) if url else ""
    if not asyncio.run(revive()):
        raise typer.Exit(FAILED)


def export(
    crawl: WhichCrawl = "",
    output: Annotated[
        list[str],
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            show_default="-",
            help="Where items go: .jsonl, .json, .csv, .parquet, .db, - for standard output, or a topic of a message "
            "broker: redis://…?topic=T. Can be given several times.",
        ),
    ] = [],  # noqa: B006
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Go on until the crawl ends; run again, go on where it was."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that another program wrote.")] = False,
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Write all items of a crawl so far, beginning with the first. Files that Uttu wrote before are replaced."""
    import asyncio
    import sys

    import msgspec

    from uttu.cli.output import format_count, say
    from uttu.engine import exporter
    from uttu.operations import items
    from uttu.operations.crawls import connect_configured_frontier, find_crawl, open_store
    from uttu.runtime import factory, outputs
    from uttu.runtime.registry import create_sink, mask_target

    targets = output or ["-"]

    async def run() -> int:
        code = 0
        async with connect_configured_frontier(frontier) as catalog:
            name, remark = await find_crawl(catalog, crawl)
            if remark:
                say(remark)
            made = [create_sink(target, name) for target in targets]
            exporter.check_distinct(made)
            sinks = {mask_target(target): sink for target, sink in zip(targets, made, strict=True)}
            async with open_store(catalog, name) as store:
                if not overwrite:
                    await outputs.check_outputs(made, catalog, await store.ledger.facts(), store if follow else None)
                await outputs.record_outputs(made, store, closed=False)
                if follow:
                    counts, code = await items.follow_items(store, sinks, say)
                else:
                    counts = {
                        target: await exporter.export(store.outbox, sink, store.ledger, factory.create_worker_name())
                        for target, sink in sinks.items()
                    }
                await outputs.record_outputs(made, store, closed=True)
        for target, count in counts.items():
            if not as_json:
                where = "standard output" if target == "-" else target
                say(f"{format_count(count, 'item')} of {name} to {where}")
        if as_json:
            summary = msgspec.json.encode({"crawl": name, "items": counts}).decode()
            print(summary, file=sys.stderr if "-" in counts else sys.stdout)
        return code

    raise typer.Exit(asyncio.run(run()))


_PLACE = "A frontier's URL, or a folder whose .uttu it is."


def move(
    source: Annotated[str, typer.Argument(help=_PLACE, metavar="FROM", show_default=False)] = "",
    target: Annotated[str, typer.Argument(help="The same.", metavar="TO", show_default=False)] = "",
    crawl: Annotated[
        str, typer.Option("--crawl", help="Which crawl, if there are several.", metavar="NAME", show_default=False)
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Forget the crawl of this name that is at TO.")] = False,
    rename: Annotated[
        bool,
        typer.Option("--rename", help="Rename what Weft, as Uttu was called before, left at FROM: here without it."),
    ] = False,
) -> None:
    """Move a paused or stopped crawl, with all its data, to another frontier."""
    import asyncio

    from uttu.operations.move import move_crawl, rename_former

    if rename:
        if target or crawl or replace:
            raise typer.BadParameter("--rename takes one place, and no other option")
        _print_renamed(asyncio.run(rename_former(source or ".")))
        return
    if not target:
        raise typer.BadParameter("say from where to where: uttu move FROM TO")
    print(asyncio.run(move_crawl(source, target, crawl, replace=replace)))


def _print_renamed(done: Renamed) -> None:
    from uttu.cli.output import format_count

    lines = [f"{name} renamed" for name in done.files]
    lines += [f"{format_count(done.keys, 'key')} renamed on {done.place}"] if done.keys else []
    for what, names in (("crawls", done.crawls), ("schedules of", done.apps), ("buses", done.buses)):
        lines += [f"  {what}: {', '.join(names)}"] if names else []
    print("\n".join(lines) or f"Nothing to rename at {done.place}")
