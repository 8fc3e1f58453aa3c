"""The scenarios, the contestants, and how each contestant is started.

Each command runs in an empty folder and writes its rows to ``out.jsonl``. Its environment has ``START_URL``, the first
page; ``HTTP2``, which is 1 if it has to offer HTTP/2 to the server; and ``REDIS_URL`` if it needs a Redis. Every
contestant has 64 connections, so of two processes each has 32. With HTTP/2 they are 64 requests at a time. Nobody
verifies the certificate, as Scrapy doesn't by default.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, NamedTuple

_JOBS: Final = Path(__file__).parent / "jobs"
_UTTU: Final = (sys.executable, "-m", "uttu", "crawl", str(_JOBS / "uttu_spider.py"), "-o", "out.jsonl")
_TWO: Final = ("--workers", "2", "-s", "concurrency=32")


class Scenario(NamedTuple):
    """A site, and how it is served. ``label`` names it in tables; ``pages`` is how many it has in a full run.

    ``mixed_links``: large pages also have links as authors write them, see :mod:`bench.side_by_side.large_pages`.
    """

    name: str
    label: str
    pages: int
    large: bool = False
    tls: bool = False
    http2: bool = False
    mixed_links: bool = False

    @property
    def result_name(self) -> str:
        """The name of its files in ``bench/results``, without a suffix."""
        return "side-by-side" if self is PLAIN else f"side-by-side-{self.name}"


PLAIN: Final = Scenario("plain", "small pages", 20_000)
TLS: Final = Scenario("tls", "small pages, TLS", 20_000, tls=True)
HTTP2: Final = Scenario("http2", "small pages, TLS, HTTP/2", 20_000, tls=True, http2=True)
LARGE: Final = Scenario("large", "large pages, TLS", 2_000, large=True, tls=True)
SCENARIOS: Final = {each.name: each for each in (PLAIN, TLS, HTTP2, LARGE)}


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


def find_contestants(scenario: Scenario, peers: Path) -> list[Contestant]:
    """Everyone in the plain scenario; Uttu, the bare loop and Scrapy in the others.

    ``peers`` is the folder of the other crawlers' programs. colly may be missing there.
    """
    python, scrapy, colly = str(peers / "python"), str(_JOBS / "scrapy_crawl.py"), peers / "colly"
    in_memory = Contestant(SCRAPY, (python, scrapy, "memory"))
    if scenario is not PLAIN:
        return [BARE, UTTU, in_memory]
    found = [
        BARE,
        UTTU,
        UTTU_TWO,
        UTTU_REDIS,
        UTTU_REDIS_TWO,
        in_memory,
        Contestant(SCRAPY_JOBDIR, (python, scrapy, "jobdir")),
        Contestant(SCRAPY_REDIS, (python, scrapy, "redis"), redis=True),
        Contestant("crawlee", (python, str(_JOBS / "crawlee_crawl.py"))),
    ]
    if colly.exists():
        found.append(Contestant(COLLY, (str(colly),)))
    return found
