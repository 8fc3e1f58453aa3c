"""The rounds: everyone in turn, again and again, each time from nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec
from bench.side_by_side.contestants import Contestant
from bench.side_by_side.machine import Theft
from bench.side_by_side.measure import cpu_of, measure
from bench.side_by_side.rows import problem
from bench.side_by_side.site import Row, StaticSite
from tests.harness.servers import RedisServer

_QUICK_SECONDS: Final = 30.0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One crawl by one contestant. One that failed has a reason and no numbers: they would say nothing.

    CPU is in microseconds a page: the crawler's own, and beside it what nginx and Redis spent on serving it.
    ``stolen`` is the percentage of the machine's time that other machines had meanwhile.
    """

    name: str
    round: int
    failure: str = ""
    seconds: float = 0.0
    pages_per_second: float = 0.0
    cpu_us: float = 0.0
    nginx_us: float = 0.0
    redis_us: float = 0.0
    peak_mb: float = 0.0
    stolen: float = 0.0


def play(
    contestants: Sequence[Contestant], site: StaticSite, *, rounds: int, patience: float, limit: float
) -> Iterator[Run]:
    """Interleaved, so that a slow minute of the machine hits all alike.

    A crawl of seconds tells of a moment, one of minutes of all its moments. So after each that takes long, those that
    are quick play once more.

    Who took longer than ``patience`` seconds, or failed, is not asked again; nobody gets more than ``limit``.
    """
    expected = site.rows()
    playing = list(contestants)
    for number in range(1, rounds + 1):
        quick: list[Contestant] = []
        for contestant in tuple(playing):
            run = _crawl(contestant, site, expected, number, limit)
            yield run
            if run.failure or run.seconds > patience:
                playing.remove(contestant)
            if not run.failure and run.seconds < _QUICK_SECONDS:
                quick.append(contestant)
            elif not run.failure:
                yield from (_crawl(each, site, expected, number, limit) for each in quick)


def _crawl(contestant: Contestant, site: StaticSite, expected: set[Row], number: int, limit: float) -> Run:
    pages = len(expected)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="uttu-bench-")))
        environment = {"START_URL": site.start}
        redis = stack.enter_context(RedisServer(appendonly=True, appendfsync="everysec")) if contestant.redis else None
        if redis:
            environment |= {"REDIS_URL": redis.url, "UTTU_FRONTIER": redis.url}
        nginx_before, redis_before = cpu_of(site.pid), cpu_of(redis.pid) if redis else 0.0
        theft = Theft()
        taken = measure(contestant.command, folder, environment, limit)
        stolen = theft.percent
        nginx, redis_cpu = cpu_of(site.pid) - nginx_before, (cpu_of(redis.pid) if redis else 0.0) - redis_before
        if taken.status != 0:
            words = (folder / "log.txt").read_text(errors="replace").strip().splitlines()
            failure = f"it ended with {taken.status}: {words[-1] if words else 'without a word'}"
        else:
            failure = problem(folder / "out.jsonl", expected)
    if failure:
        return Run(name=contestant.name, round=number, failure=failure)
    return Run(
        name=contestant.name,
        round=number,
        seconds=round(taken.seconds, 3),
        pages_per_second=round(pages / taken.seconds, 1),
        cpu_us=round(taken.cpu / pages * 1e6, 1),
        nginx_us=round(nginx / pages * 1e6, 1),
        redis_us=round(redis_cpu / pages * 1e6, 1),
        peak_mb=round(taken.peak / 1e6, 1),
        stolen=stolen,
    )
