"""``python -m tests.harness.nemesis``: run seeds, say what came of each; exit with 1 if one is not clean."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from tests.harness.nemesis import report
from tests.harness.nemesis.run import Result, run
from tests.harness.nemesis.schedule import draw
from tests.harness.servers import RedisServer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.nemesis", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (%(default)s)")
    parser.add_argument("--report", type=Path, help="a page to write the table into, between its marks")
    return parser.parse_args()


async def run_all(first: int, count: int, jobs: int) -> list[Result]:
    free = asyncio.Semaphore(jobs)

    async def one(seed: int) -> Result:
        async with free:
            result = await run(draw(seed))
        print(report.line(result), flush=True)
        return result

    return await asyncio.gather(*(one(seed) for seed in range(first, first + count)))


def server_name() -> str:
    """The program and version that seeds are run against."""
    with RedisServer() as server:
        about = server.info("server")
    return f"Valkey {about['valkey_version']}" if "valkey_version" in about else f"Redis {about['redis_version']}"


def main() -> int:
    given = arguments()
    began = time.monotonic()
    results = asyncio.run(run_all(given.first, given.seeds, given.jobs))
    clean = sum(not result.findings for result in results)
    print(f"{clean} of {len(results)} seeds clean, {time.monotonic() - began:.0f} s")
    if given.report:
        report.write(given.report, report.table(results, server_name()))
    return 0 if clean == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
