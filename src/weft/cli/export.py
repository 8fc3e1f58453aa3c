"""``weft export``: the items of a crawl once more, in any format."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import AsJson
from weft.cli.targets import WhichCrawl


def export(
    crawl: WhichCrawl = "",
    output: Annotated[
        list[str],
        typer.Option(
            "-o", "--output", metavar="FILE", show_default="-",
            help="Where items go: .jsonl, .json, .csv, .parquet, .db, or - for standard output. "
            "Can be given several times.",
        ),
    ] = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write all items that a crawl has so far, from the first on. A file that is there is replaced."""
    import asyncio
    import sys

    import msgspec

    from weft.cli.crawls import choose, opened
    from weft.cli.tables import number, say
    from weft.engine import drain
    from weft.sinks.select import sink_for

    targets = output or ["-"]
    sinks = [(target, sink_for(target)) for target in targets]

    async def run() -> None:
        path, remark = await choose(crawl)
        if remark:
            say(remark)
        counts = {}
        async with opened(path) as store:
            for target, sink in sinks:
                counts[target] = await drain.export(store.outbox, sink)
                if not as_json:
                    where = "standard output" if target == "-" else target
                    say(f"{number(counts[target], 'item')} of {path.stem} to {where}")
        if as_json:
            summary = msgspec.json.encode({"crawl": path.stem, "items": counts}).decode()
            print(summary, file=sys.stderr if "-" in counts else sys.stdout)

    asyncio.run(run())
