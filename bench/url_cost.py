"""What a new and a known URL cost the embedded frontier as the crawl grows, and the bytes it takes on disk.

    python bench/url_cost.py [--sizes 100000 1000000 3000000] [--hosts 2000]

URLs are put in batches of 1,000 over many hosts. At each size the mean of the next 20,000 new and
20,000 known URLs is taken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from pathlib import Path

from weft.frontier.base import Rules
from weft.frontier.sqlite import Database, SqliteFrontier
from weft.model import Request

BATCH, SAMPLE = 1000, 20_000


def request(number: int, hosts: int) -> Request:
    return Request(url=f"https://host{number % hosts}.example/articles/{number}/a-title-of-some-length", depth=3)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 3_000_000])
    parser.add_argument("--hosts", type=int, default=2000)
    options = parser.parse_args()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "crawl.db")
        frontier = SqliteFrontier(Database.open(path), Rules())
        count = 0

        async def put(total: int, *, known: bool) -> float:
            nonlocal count
            spent = 0.0
            for _ in range(total // BATCH):
                numbers = rng.sample(range(count), BATCH) if known else range(count, count + BATCH)
                batch = [request(number, options.hosts) for number in numbers]
                begin = time.perf_counter()
                admitted = await frontier.put(batch)
                spent += time.perf_counter() - begin
                assert admitted == (0 if known else BATCH)
                count += admitted
            return spent / total * 1e6

        for size in options.sizes:
            await put(size - count, known=False)
            new, known = await put(SAMPLE, known=False), await put(SAMPLE, known=True)
            disk = sum(os.path.getsize(path.with_name(path.name + end)) for end in ("", "-wal"))
            print(
                json.dumps(
                    {
                        "seen": size,
                        "new_us": round(new, 1),
                        "known_us": round(known, 1),
                        "bytes_per_url": round(disk / count, 1),
                    }
                ),
                flush=True,
            )
        await frontier.close()


if __name__ == "__main__":
    asyncio.run(main())
