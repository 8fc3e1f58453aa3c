"""The same job by every contestant, in interleaved rounds.

    python -m bench.side_by_side [SCENARIO …] [--pages N] [--rounds 3] [--patience 200] [--only NAME …]
    python -m bench.side_by_side --readme

The job: visit all pages of a site on this machine from its first one, take title and price of each, write them as JSON
lines, follow all links; 64 connections, no delay, no robots.txt. Time is that of the whole process, including its
start. A crawl whose rows are not exactly those of the site does not count.

The scenarios, all of them unless some are named:

    plain   20,000 pages of 6 KB with 32 links each, HTTP/1.1 without TLS; all contestants
    tls     the same pages over TLS with HTTP/1.1; Uttu, the bare loop and Scrapy, as in the following
    http2   the same over TLS with HTTP/2
    large   2,000 pages of 60 to 300 KB with 200 links each, over TLS with HTTP/1.1

A contestant that takes longer than ``--patience`` seconds runs in one round only. Contestants that take less than 30
seconds run once more after each that takes longer. The table says how often each has run. ``--readme`` prints the
README's table from the saved results.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.common import RESULTS, compile_uttu, table
from bench.side_by_side.machine import describe_machine, find_versions
from bench.side_by_side.result import Median, Result, compute_medians, compute_ratios, format_readme_table
from bench.side_by_side.rounds import Run, run_rounds
from bench.side_by_side.scenarios import PLAIN, SCENARIOS, Scenario, find_contestants
from bench.side_by_side.site import StaticSite

_LIMIT: Final = 1_800.0  # seconds, after which a crawl is killed


def main() -> None:
    options = _parse_options()
    if options.readme:
        print(format_readme_table(options.results), end="")
        return
    compile_uttu()
    failed = [name for name in options.scenarios or SCENARIOS if not _run_scenario(SCENARIOS[name], options)]
    if failed:
        sys.exit(f"Some crawls failed, see above: {', '.join(failed)}")


def _run_scenario(scenario: Scenario, options: argparse.Namespace) -> bool:
    """Run a scenario, print and save its result. Returns whether every crawl wrote the right rows."""
    contestants = [
        each for each in find_contestants(scenario, options.peers) if not options.only or each.name in options.only
    ]
    date, machine = datetime.now(UTC).date().isoformat(), describe_machine()
    pages = options.pages or scenario.pages
    runs: list[Run] = []
    print(f"\n{scenario.label}: {pages:,} pages", flush=True)
    with StaticSite(scenario, pages, options.peers) as site:
        versions = find_versions(options.peers, site.program)
        for run in run_rounds(contestants, site, rounds=options.rounds, patience=options.patience, limit=_LIMIT):
            _print_run(run)
            runs.append(run)
        mean_bytes = site.mean_bytes
    result = Result(
        date=date,
        machine=machine,
        pages=pages,
        mean_bytes=mean_bytes,
        versions=versions,
        medians=compute_medians(runs),
        ratios=compute_ratios(runs),
        runs=runs,
    )
    _print_table(scenario, pages, result.medians)
    for pair, ratio in result.ratios.items():
        print(f"{pair}: {ratio if ratio is not None else 'no round with both'}")
    file = result.save(options.results, scenario)
    print(f"Saved: {file}")
    if scenario is PLAIN:
        chart = [str(options.peers / "python"), str(Path(__file__).with_name("chart.py")), str(file)]
        subprocess.run(chart, check=True)
    return not any(run.failure for run in runs)


def _print_run(run: Run) -> None:
    numbers = (
        f"{run.pages_per_second:,.0f} pages/s, CPU {run.cpu_us:,.0f} µs/page, stolen {run.stolen} %, "
        f"other processes {run.other} %, {run.protocol}"
    )
    print(f"round {run.round}: {run.name}: {f'FAILED: {run.failure}' if run.failure else numbers}", flush=True)


def _print_table(scenario: Scenario, pages: int, medians: Sequence[Median]) -> None:
    columns = {
        "": [each.name for each in medians],
        "pages/s": [round(each.pages_per_second) for each in medians],
        "slowest": [round(each.slowest) for each in medians],
        "fastest": [round(each.fastest) for each in medians],
        "CPU µs": [round(each.cpu_us) for each in medians],
        "nginx µs": [round(each.nginx_us) for each in medians],
        "Redis µs": [round(each.redis_us) or None for each in medians],
        "peak MB": [round(each.peak_mb) for each in medians],
        "stolen %": [each.stolen for each in medians],
        "others %": [each.other for each in medians],
        "× Scrapy": [each.ratio for each in medians],
        "runs": [each.rounds for each in medians],
        "protocol": [each.protocol for each in medians],
    }
    title = f"Side by side, {scenario.label}: {pages:,} pages, medians of the runs; CPU for one page"
    table(title, list(columns), list(zip(*columns.values(), strict=True)))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--pages", type=int, default=0, help="of each scenario, instead of its usual number")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=200.0, help="seconds; slower contestants run in one round")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contestants by the names in the table")
    parser.add_argument("--peers", type=Path, default=Path(".venv-bench/bin"), help="the other crawlers' programs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder to save to")
    parser.add_argument("--readme", action="store_true", help="print the README's table and exit")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"unknown scenario: {', '.join(sorted(unknown))}; known are {', '.join(SCENARIOS)}")
    options.peers = options.peers.absolute()
    return options


if __name__ == "__main__":
    main()
