"""How much space a crawl's items need in its store while an output is attached: ``python -m bench.growth``.

A million items (100,000 pages with ten each, about 400 bytes an item) go from the test site to a JSON Lines file, once
with the default ``keep_items`` and once with ``keep_items=0``, on SQLite and on Redis. Sampled at every tenth of the
items: the size of the crawl's file with its log, or the memory that the server uses.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.harness.servers import RedisServer

from uttu.testing.site import Site, SiteProcess

SPIDER = """
import os
from uttu import Page, Spider

spider = Spider("growth", start=os.environ["START"], private=True, robots=False, delay=0, per_host=0)
TEXT = "x" * 340

@spider.page
def page(page: Page):
    for number in range(10):
        yield {"url": page.url, "number": number, "text": TEXT}
    yield page.follow_all("a")
"""
STEPS = 10


def measure(kind: str, pages: int, keep: str) -> dict[str, object]:
    """Sizes in MB at every tenth of the items, the size at the end, and the seconds of the crawl."""
    with tempfile.TemporaryDirectory() as name, SiteProcess(Site(pages=pages)) as site, RedisServer() as server:
        folder = Path(name)
        (folder / "spider.py").write_text(SPIDER)
        frontier = server.url if kind == "redis" else f"sqlite:{folder}"
        began = time.monotonic()
        crawl = subprocess.Popen(
            [sys.executable, "-m", "uttu", "crawl", "spider.py", "-o", "out.jsonl", *(["-s", keep] if keep else [])],
            cwd=folder,
            env=os.environ | {"START": site.url + "p/0", "UTTU_FRONTIER": frontier},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        sizes: list[int] = []
        out = folder / "out.jsonl"
        line = 0
        while crawl.poll() is None:
            written = out.stat().st_size if out.exists() else 0
            line = line or (len(out.open("rb").readline()) if written else 0)
            if line and written / line >= (len(sizes) + 1) * pages * 10 / STEPS * 0.98:
                sizes.append(read_megabytes(kind, folder, server))
            time.sleep(0.05)
        seconds = time.monotonic() - began
        assert crawl.returncode == 0, crawl.stderr and crawl.stderr.read()
        with out.open("rb") as file:
            assert sum(1 for _ in file) == pages * 10
        at_end = read_megabytes(kind, folder, server)
    about = {"store": kind, "settings": keep or "default", "seconds": round(seconds)}
    return about | {"megabytes": sizes, "at end": at_end}


def read_megabytes(kind: str, folder: Path, server: RedisServer) -> int:
    if kind == "redis":
        return round(int(server.info("memory")["used_memory"]) / 1e6)
    files = (folder / ".uttu" / "crawls").glob("growth.db*")
    return round(sum(file.stat().st_size for file in files if file.is_file()) / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth")
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--stores", nargs="*", default=["sqlite", "redis"])
    given = parser.parse_args()
    for kind in given.stores:
        for keep in ("", "keep_items=0"):
            print(json.dumps(measure(kind, given.pages, keep)), flush=True)


if __name__ == "__main__":
    main()
