"""``weft export``: the items of a crawl once more, in any format."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import AsJson, FrontierUrl
from weft.cli.targets import WhichCrawl


def export(
    crawl: WhichCrawl = "",
    output: Annotated[
        list[str],
        typer.Option(
            "-o", "--output", metavar="FILE", show_default="-",
            help="Where items go: .jsonl, .json, .csv, .parquet, .db, - for standard output, or a topic of a message "
            "broker: redis://…?topic=T. Can be given several times.",
        ),
    ] = [],  # noqa: B006
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Go on until the crawl ends; run again, go on where it was."),
    ] = False,
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write all items that a crawl has so far, from the first on. A file that is there is replaced."""
    import asyncio
    import sys

    import msgspec

    from weft import assembly
    from weft.cli import following
    from weft.cli.crawls import choose, depot_at, opened
    from weft.cli.words import number, say
    from weft.engine import drain

    targets = output or ["-"]

    async def run() -> int:
        code = 0
        async with depot_at(frontier) as depot:
            name, remark = await choose(depot, crawl)
            if remark:
                say(remark)
            made = [assembly.sink_for(target, name) for target in targets]
            drain.check_distinct(made)
            sinks = {assembly.shown(target): sink for target, sink in zip(targets, made, strict=True)}
            async with opened(depot, name) as store:
                if follow:
                    counts, code = await following.follow(store, sinks)
                else:
                    counts = {target: await drain.export(store.outbox, sink) for target, sink in sinks.items()}
        for target, count in counts.items():
            if not as_json:
                where = "standard output" if target == "-" else target
                say(f"{number(count, 'item')} of {name} to {where}")
        if as_json:
            summary = msgspec.json.encode({"crawl": name, "items": counts}).decode()
            print(summary, file=sys.stderr if "-" in counts else sys.stdout)
        return code

    raise typer.Exit(asyncio.run(run()))
