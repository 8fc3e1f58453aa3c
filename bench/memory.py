"""The memory of a crawl as it grows: one process, until ``--seen`` URLs are seen.

    python bench/memory.py [--seen 1000000] [--links 100]

Prints the crawl's size and the process's resident memory every few seconds, then the peak.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from uttu.testing.site import Site, SiteProcess

SPIDER = """
import os
from uttu import Page, Spider

spider = Spider("memory", start=os.environ["SITE_URL"], robots=False, delay=0, per_host=0)

@spider.page
def page(page: Page):
    yield {"url": page.url, "title": page.css("title::text").get()}
    yield page.follow_all("a")
"""


def count_seen(database: Path) -> int:
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        try:
            return int(connection.execute("SELECT pending + leased + delayed + done + dead FROM tally").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seen", type=int, default=1_000_000)
    parser.add_argument("--links", type=int, default=100)
    options = parser.parse_args()
    site = Site(pages=int(options.seen * 1.2), links=options.links, page_bytes=10_000)
    with SiteProcess(site) as running, tempfile.TemporaryDirectory() as folder:
        Path(folder, "spider.py").write_text(SPIDER)
        crawl = subprocess.Popen(
            [sys.executable, "-m", "uttu", "crawl", "spider.py", "-o", "out.jsonl"],
            cwd=folder,
            env=os.environ | {"SITE_URL": running.url + "p/0"},
            stderr=subprocess.DEVNULL,
        )
        process, peak, count, begin = psutil.Process(crawl.pid), 0, 0, time.monotonic()
        while count < options.seen and crawl.poll() is None:
            time.sleep(3)
            count = count_seen(Path(folder, ".uttu", "crawls", "memory.db"))
            resident = process.memory_info().rss
            peak = max(peak, resident)
            line = {"seconds": round(time.monotonic() - begin), "seen": count, "resident_mb": resident >> 20}
            print(json.dumps(line), flush=True)
        crawl.terminate()
        crawl.wait()
    print(json.dumps({"seen": count, "peak_mb": peak >> 20}))


if __name__ == "__main__":
    main()
