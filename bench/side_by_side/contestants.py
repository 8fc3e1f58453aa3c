"""Who takes part, and how each is started.

Each command runs in an empty folder, is told where to begin by ``START_URL`` and, if it wants a Redis, where that is
by ``REDIS_URL``, and leaves its rows in ``out.jsonl``. All have 64 connections in all, so two processes 32 each.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, NamedTuple

_JOBS: Final = Path(__file__).parent / "jobs"
_UTTU: Final = (sys.executable, "-m", "uttu", "crawl", str(_JOBS / "uttu_spider.py"), "-o", "out.jsonl")
_TWO: Final = ("--workers", "2", "-s", "concurrency=32")


class Contestant(NamedTuple):
    name: str
    command: tuple[str, ...]
    redis: bool = False


UTTU: Final = Contestant("Uttu, SQLite", _UTTU)
UTTU_TWO: Final = Contestant("Uttu, SQLite, 2 processes", (*_UTTU, *_TWO))
UTTU_REDIS: Final = Contestant("Uttu, Redis", _UTTU, redis=True)
UTTU_REDIS_TWO: Final = Contestant("Uttu, Redis, 2 workers", (*_UTTU, *_TWO), redis=True)
BARE: Final = Contestant("bare loop, no framework", (sys.executable, str(_JOBS / "bare_loop.py")))

SCRAPY: Final = "Scrapy, memory"
SCRAPY_JOBDIR: Final = "Scrapy, JOBDIR"
SCRAPY_REDIS: Final = "scrapy-redis"
COLLY: Final = "colly (Go)"


def contestants(peers: Path) -> list[Contestant]:
    """All that are there; ``peers`` is the folder of the other crawlers' programs, of which colly may be missing."""
    python, scrapy, colly = str(peers / "python"), str(_JOBS / "scrapy_crawl.py"), peers / "colly"
    found = [
        BARE,
        UTTU,
        UTTU_TWO,
        UTTU_REDIS,
        UTTU_REDIS_TWO,
        Contestant(SCRAPY, (python, scrapy, "memory")),
        Contestant(SCRAPY_JOBDIR, (python, scrapy, "jobdir")),
        Contestant(SCRAPY_REDIS, (python, scrapy, "redis"), redis=True),
        Contestant("crawlee", (python, str(_JOBS / "crawlee_crawl.py"))),
    ]
    if colly.exists():
        found.append(Contestant(COLLY, (str(colly),)))
    return found
