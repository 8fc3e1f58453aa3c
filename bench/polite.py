"""How close to the possible rate a polite crawl comes, and whether it ever undercuts the delay.

    python bench/polite.py [--hosts 300] [--delay 0.1] [--seconds 20] [--workers 1]

Pages of many hosts, all known from the start so that no lane runs dry, are fetched with a delay per
host, robots.txt obeyed. Truth is the site's own log. Possible are hosts / delay requests a second; the
first two seconds, in which the lanes fill, and the last are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from weft.testing.site import Site, SiteProcess, gaps

SPIDER = """
import os
from weft import Page, Spider

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=300)
    parser.add_argument("--delay", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()

    pages = int(options.hosts * options.seconds / options.delay * 1.1)
    site = Site(hosts=options.hosts, pages=pages, links=3, page_bytes=600)
    with SiteProcess(site) as running, tempfile.TemporaryDirectory() as folder:
        Path(folder, "polite.py").write_text(SPIDER)
        subprocess.run(
            [sys.executable, "-m", "weft", "crawl", "polite.py", "--max-time", str(options.seconds),
             "--workers", str(options.workers)],
            cwd=folder, check=True, env=os.environ
            | {"SITE_URLS": " ".join(running.urls), "PAGES": str(pages), "DELAY": str(options.delay)},
        )  # fmt: skip
        records = running.records()

    begin, end = records[0].time + 2.0, records[-1].time - 1.0
    steady = [record for record in records if begin <= record.time < end]
    between = sorted(gap for each in gaps(records).values() for gap in each)
    possible = options.hosts / options.delay
    achieved = len(steady) / (end - begin)
    print(
        json.dumps(
            {
                "requests": len(records),
                "possible_per_second": round(possible, 1),
                "achieved_per_second": round(achieved, 1),
                "share": round(achieved / possible, 4),
                "shortest_gap": round(between[0], 5),
                "median_gap": round(statistics.median(between), 5),
                "gaps_below_delay": sum(gap < options.delay for gap in between),
            }
        )
    )


if __name__ == "__main__":
    main()
