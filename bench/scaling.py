"""The same crawl by one process and by two, on SQLite, on one machine.

    python -m bench.scaling [--pages 60000] [--rounds 3]

A web server on the same machine would use part of the second core. So there is none: a middleware of the spider makes
each page (6 KB, 32 links) in the process that requests it. The rest is everything that Uttu does except the HTTP
exchange: leases, parsing, links, settling, writing items. Time is that of the whole command, including its start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.common import save, table

SPIDER = """
import asyncio
import os

from uttu import Page, Request, Response, Spider
from uttu.model import Headers
from uttu.testing.site.model import Layout, Site
from uttu.testing.site.pages import Pages

spider = Spider("scaling", start="http://127.0.0.1:8080/p/0", robots=False, delay=0, per_host=0)
pages = Pages(Layout.at(Site(pages=int(os.environ["PAGES"])), 8080))
headers = Headers([("content-type", "text/html; charset=utf-8")])

async def make_page(request, next):
    await asyncio.sleep(0)
    body = pages.render(0, int(request.url.rpartition("/")[2]))
    return Response(request=request, url=request.url, status=200, headers=headers, body=body)

spider.use(make_page)

@spider.page
def page(page: Page):
    yield {"url": page.url, "title": page.css("title::text").get(), "price": page.css("span.price::text").get()}
    yield page.follow_all("a")
"""


def crawl(pages: int, workers: int) -> float:
    """Pages a second."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "spider.py").write_text(SPIDER)
        command = [sys.executable, "-m", "uttu", "crawl", "spider.py", "-o", "out.jsonl", "--workers", str(workers)]
        began = time.monotonic()
        subprocess.run(
            command, cwd=folder, check=True, stderr=subprocess.DEVNULL, env=os.environ | {"PAGES": str(pages)}
        )
        seconds = time.monotonic() - began
        rows = Path(folder, "out.jsonl").read_bytes().count(b"\n")
        if rows != pages:
            raise SystemExit(f"{rows} rows for {pages} pages: the result does not count")
    return pages / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for workers, measured in rates.items():
            measured.append(crawl(options.pages, workers))
    ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    rows = [[workers, round(statistics.median(each)), *map(round, each)] for workers, each in rates.items()]
    table("Pages a second", ["processes", "median", *[f"round {n + 1}" for n in range(options.rounds)]], rows)
    print(f"two processes / one: {statistics.median(ratios):.2f}")
    save("scaling", {"pages": options.pages, "pages_per_second": rates, "ratios": ratios})


if __name__ == "__main__":
    main()
