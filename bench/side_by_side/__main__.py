"""The same job by everyone, in interleaved rounds.

    python -m bench.side_by_side [--pages 20000] [--rounds 3] [--patience 200] [--only NAME …]

The job: visit all pages of a site on this machine from its first one, take title and price of each, write them as JSON
lines, follow all links; 64 connections, no delay, no robots.txt. Time is that of the whole process, its start included.
A crawl whose rows are not exactly those of the site does not count. Who takes longer than ``--patience`` seconds plays
one round only; those that are done in seconds play once more after each that takes long. The table says how often each
has played.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from bench.common import compile_uttu, table
from bench.side_by_side.contestants import contestants
from bench.side_by_side.machine import machine
from bench.side_by_side.result import Median, medians, ratios
from bench.side_by_side.rounds import Run, play
from bench.side_by_side.site import StaticSite
from bench.side_by_side.versions import versions

_LIMIT: Final = 1_800.0  # seconds for one crawl, after which it is taken to hang


def main() -> None:
    options = _options()
    compile_uttu()
    playing = [each for each in contestants(options.peers) if not options.only or each.name in options.only]
    date = datetime.now(UTC).date().isoformat()
    about: dict[str, Any] = {"date": date, "machine": machine(), "pages": options.pages}
    with StaticSite(options.pages, options.peers) as site:
        about["versions"] = versions(options.peers, site.program)
        found = play(playing, site, rounds=options.rounds, patience=options.patience, limit=_LIMIT)
        runs = list(_told(found))
    result = about | {"medians": medians(runs), "ratios": ratios(runs), "runs": runs}

    _show(options.pages, medians(runs))
    for pair, ratio in ratios(runs).items():
        print(f"{pair}: {ratio if ratio is not None else 'not to be had'}")
    file = options.results.with_suffix(".json")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    chart = [str(options.peers / "python"), str(Path(__file__).with_name("chart.py")), str(file)]
    subprocess.run(chart, check=True)
    print(f"written: {file}, {file.with_suffix('.png')}")
    if any(run.failure for run in runs):
        sys.exit("some failed, see above")


def _told(runs: Iterator[Run]) -> Iterator[Run]:
    for run in runs:
        what = (
            f"FAILED: {run.failure}" if run.failure else f"{run.pages_per_second:,.0f} pages/s, stolen {run.stolen} %"
        )
        print(f"round {run.round}: {run.name}: {what}", flush=True)
        yield run


def _show(pages: int, found: Sequence[Median]) -> None:
    heads = (
        "",
        "pages/s",
        "slowest",
        "fastest",
        "CPU µs",
        "nginx µs",
        "Redis µs",
        "peak MB",
        "stolen %",
        "× Scrapy",
        "runs",
    )
    rows = [
        (
            each.name,
            round(each.pages_per_second),
            round(each.slowest),
            round(each.fastest),
            round(each.cpu_us),
            round(each.nginx_us),
            round(each.redis_us) or None,
            round(each.peak_mb),
            each.stolen,
            each.ratio,
            each.rounds,
        )
        for each in found
    ]
    table(f"Side by side: {pages:,} pages, medians of the rounds; CPU for one page, of servers beside", heads, rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=200.0, help="seconds; who takes longer plays one round")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contestants by the names in the table")
    parser.add_argument("--peers", type=Path, default=Path(".venv-bench/bin"), help="the other crawlers' programs")
    parser.add_argument("--results", type=Path, default=Path("bench/results/side-by-side"), help="without a suffix")
    options = parser.parse_args()
    options.peers = options.peers.absolute()
    return options


if __name__ == "__main__":
    main()
