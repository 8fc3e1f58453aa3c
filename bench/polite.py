"""How close a polite crawl comes to the possible rate, how late its requests are, and whether a gap is below the delay.

    python -m bench.polite [--hosts 1000] [--delay 0.5] [--seconds 20] [--rounds 5] [--workers 1]

Pages of many hosts are fetched with a delay per host, and robots.txt is obeyed. All pages are known from the start, so
that no lane is ever empty. The requests are read from the site's log. The possible rate is hosts / delay. A request is
late by the gap before it minus the delay. The first seconds, in which the lanes fill, and the last are left out. A gap
across such an edge counts by its share inside: hosts are visited in bursts, so whole requests would count a burst too
many or too few.

The result is the median of the rounds. Each round has its CPU steal: if a crawl can't run for 50 ms, every request that
was due is late by 50 ms.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.common import compile_uttu, save, table
from bench.side_by_side.machine import UseMeter

from uttu.testing.site import Record, Site, SiteProcess, gaps

SPIDER = """
import os
from uttu import Page, Spider

hosts = os.environ["SITE_URLS"].split()
spider = Spider("polite", delay=float(os.environ["DELAY"]), private=True)

@spider.start
def start():
    for number in range(int(os.environ["PAGES"])):
        yield f"{hosts[number % len(hosts)]}p/{number}"

@spider.page
def page(page: Page):
    yield {"url": page.url, "title": page.css("title::text").get()}
"""
FIRST_SECONDS, LAST_SECONDS = 2.0, 1.0
_GOAL = 0.95
_PERCENTILES = {"median": 50, "p95": 95, "p99": 99}


def crawl(hosts: int, delay: float, seconds: float, workers: int) -> list[Record]:
    """Run the crawl. Returns the site's log."""
    pages = int(hosts * seconds / delay * 1.1)
    site = Site(hosts=hosts, pages=pages, links=3, page_bytes=600)
    with SiteProcess(site) as running, tempfile.TemporaryDirectory() as folder:
        Path(folder, "polite.py").write_text(SPIDER)
        subprocess.run(
            [sys.executable, "-m", "uttu", "crawl", "polite.py", "--max-time", str(seconds), "--workers", str(workers)],
            cwd=folder,
            check=True,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"SITE_URLS": " ".join(running.urls), "PAGES": str(pages), "DELAY": str(delay)},
        )
        return running.records()


def evaluate(records: Sequence[Record], hosts: int, delay: float) -> dict[str, Any]:
    """The rate between the first and the last seconds, and how late the requests were."""
    begin = records[0].time + max(FIRST_SECONDS, 4 * delay)
    end = records[-1].time - max(LAST_SECONDS, 2 * delay)
    moments: defaultdict[str, list[float]] = defaultdict(list)
    for record in records:
        moments[record.host].append(record.time)
    count, late = 0.0, []
    for earlier, later in itertools.chain.from_iterable(map(itertools.pairwise, moments.values())):
        within = min(later, end) - max(earlier, begin)
        if within > 0:
            count += within / (later - earlier)
            late.append(later - earlier - delay)
    possible, achieved = hosts / delay, count / (end - begin)
    percentiles = statistics.quantiles(late, n=100)
    between = [gap for each in gaps(records).values() for gap in each]
    return {
        "requests": len(records),
        "possible_per_second": round(possible, 1),
        "achieved_per_second": round(achieved, 1),
        "share": round(achieved / possible, 4),
        "late_ms": {name: round(percentiles[part - 1] * 1000, 1) for name, part in _PERCENTILES.items()},
        "shortest_gap": round(min(between), 5),
        "gaps_below_delay": sum(gap < delay for gap in between),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    compile_uttu()
    rounds = []
    for _ in range(options.rounds):
        meter = UseMeter()
        records = crawl(options.hosts, options.delay, options.seconds, options.workers)
        rounds.append({"stolen_percent": meter.read().stolen, **evaluate(records, options.hosts, options.delay)})
    rows = [_row(found) for found in rounds]
    title = f"Politeness: {options.hosts:,} hosts, a delay of {options.delay} s, workers: {options.workers}"
    table(title, list(rows[0]), [list(row.values()) for row in rows])
    share = statistics.median(found["share"] for found in rounds)
    print(f"median {share:.1%}; the goal is {_GOAL:.0%} or more, and no gap below the delay")
    save(f"polite_{options.hosts}x{options.delay:g}", {"options": vars(options), "share": share, "rounds": rounds})


def _row(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "possible/s": found["possible_per_second"],
        "achieved/s": found["achieved_per_second"],
        "share %": round(found["share"] * 100, 1),
        **{f"late ms, {name}": value for name, value in found["late_ms"].items()},
        "shortest gap s": f"{found['shortest_gap']:.4f}",
        "too short": found["gaps_below_delay"],
        "stolen %": found["stolen_percent"],
    }


if __name__ == "__main__":
    main()
