"""How many pages a second one crawl takes in, without a delay: 6 KB and 32 links a page, all on this machine.

python bench/speed.py [--pages 20000] [--workers 1] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from weft.testing.site import Site, SiteProcess

SPIDER = """
import os
from weft import Page, Spider

spider = Spider("speed", start=os.environ["SITE_URL"], robots=False, delay=0, per_host=0)

@spider.page
def page(page: Page):
    yield {"url": page.url, "title": page.css("title::text").get(), "price": page.css("span.price::text").get()}
    yield page.follow_all("a")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rates = []
    with SiteProcess(Site(pages=options.pages)) as site, tempfile.TemporaryDirectory() as folder:
        Path(folder, "spider.py").write_text(SPIDER)
        for _ in range(options.rounds):
            begin = time.monotonic()
            subprocess.run(
                [sys.executable, "-m", "weft", "crawl", "spider.py", "--fresh", "-o", "out.jsonl",
                 "--workers", str(options.workers)],
                cwd=folder, check=True, stderr=subprocess.DEVNULL, env=os.environ | {"SITE_URL": site.url + "p/0"},
            )  # fmt: skip
            rates.append(options.pages / (time.monotonic() - begin))
            rows = Path(folder, "out.jsonl").read_bytes().count(b"\n")
            if rows != options.pages:
                raise SystemExit(f"{rows} rows for {options.pages} pages: the result does not count")
    print(json.dumps({"pages_per_second": round(statistics.median(rates)), "rounds": [round(rate) for rate in rates]}))


if __name__ == "__main__":
    main()
