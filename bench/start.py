"""How long it takes to start: ``uttu --help``, and a crawl until its first page and its first item.

    python -m bench.start [--rounds 9]

A crawl of one page is timed from before its process is created: until the site gets the first request (robots.txt),
until it gets the request for the start page, until the output has a line, and until the process ends. The spider's
delay is 0, so it adds nothing between the two requests. Medians, with the quickest and the slowest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.common import compile_uttu, save, table

from uttu.testing.site import Site, SiteProcess

SPIDER = """
import os
from uttu import Page, Spider

spider = Spider("start", start=os.environ["SITE_URL"], delay=0, private=True)

@spider.page
def page(page: Page):
    yield {"url": page.url, "title": page.css("title::text").get()}
"""
PAGE = "/p/0"
_UTTU = Path(sys.executable).with_name("uttu")
_POLL_SECONDS = 0.001


def time_help() -> float:
    begin = time.monotonic()
    subprocess.run([_UTTU, "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def time_crawl(site: SiteProcess, folder: Path) -> dict[str, float]:
    """Seconds from the start of a crawl to each event."""
    folder.mkdir()
    (folder / "spider.py").write_text(SPIDER)
    output = folder / "out.jsonl"
    seen = len(site.records())
    begin = time.monotonic()
    with subprocess.Popen(
        [_UTTU, "crawl", "spider.py", "-o", output.name],
        cwd=folder,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"SITE_URL": site.url.rstrip("/") + PAGE},
    ) as crawl:
        while crawl.poll() is None and not (output.exists() and output.stat().st_size):
            time.sleep(_POLL_SECONDS)
        written = time.monotonic()
        if crawl.wait():
            raise SystemExit("The crawl failed, so the result does not count")
        ended = time.monotonic()
    records = site.records()[seen:]
    page = next(record.time for record in records if record.path == PAGE)
    return {
        "first request": records[0].time - begin,
        "first page": page - begin,
        "first item": written - begin,
        "end": ended - begin,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    compile_uttu()
    times: defaultdict[str, list[float]] = defaultdict(list)
    with SiteProcess(Site(pages=1)) as site, tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            times["uttu --help"].append(time_help())
            for name, seconds in time_crawl(site, Path(folder, str(number))).items():
                times[f"uttu crawl: {name}"].append(seconds)
    found: dict[str, Any] = {
        name: {"median": statistics.median(each), "least": min(each), "most": max(each)} for name, each in times.items()
    }
    rows = [[name, *(f"{value:.3f}" for value in each.values())] for name, each in found.items()]
    table("Seconds to start", ["what", "median", "least", "most"], rows)
    save("start", {"rounds": options.rounds, "seconds": found})


if __name__ == "__main__":
    main()
