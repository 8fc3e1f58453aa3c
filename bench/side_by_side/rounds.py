"""The rounds: every contestant in turn, several times, each time with an empty folder and an empty Redis."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec
from bench.side_by_side.machine import UseMeter
from bench.side_by_side.measure import measure, read_cpu_seconds
from bench.side_by_side.scenarios import Contestant
from bench.side_by_side.site import Row, StaticSite
from tests.harness.servers import RedisServer

_QUICK_SECONDS: Final = 30.0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One crawl by one contestant. A failed one has a reason and no numbers.

    CPU is in microseconds a page: of the crawler's processes, and separately of nginx and Redis. ``stolen`` and
    ``other`` are percentages of all cores' time: CPU steal, and what all other processes of the machine used.
    ``protocol`` is the one that nginx logged, such as ``HTTP/2.0 TLSv1.3``.
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
    other: float | None = None
    protocol: str = ""


def run_rounds(
    contestants: Sequence[Contestant], site: StaticSite, *, rounds: int, patience: float, limit: float
) -> Iterator[Run]:
    """Run all contestants in turn, so that a slow minute of the machine affects all of them.

    A crawl of seconds measures a moment of the machine, a crawl of minutes an average. So the quick contestants run
    once more after each slow one.

    A contestant that took longer than ``patience`` seconds, or failed, does not run again. A crawl is killed after
    ``limit`` seconds.
    """
    expected = site.rows()
    left = list(contestants)
    for number in range(1, rounds + 1):
        quick: list[Contestant] = []
        for contestant in tuple(left):
            run = _run(contestant, site, expected, number, limit)
            yield run
            if run.failure or run.seconds > patience:
                left.remove(contestant)
            if not run.failure and run.seconds < _QUICK_SECONDS:
                quick.append(contestant)
            elif not run.failure:
                yield from (_run(each, site, expected, number, limit) for each in quick)


def _run(contestant: Contestant, site: StaticSite, expected: set[Row], number: int, limit: float) -> Run:
    pages = len(expected)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="uttu-bench-")))
        environment = {"START_URL": site.start, "HTTP2": str(int(site.scenario.http2))}
        redis = stack.enter_context(RedisServer(appendonly=True, appendfsync="everysec")) if contestant.redis else None
        if redis:
            environment |= {"REDIS_URL": redis.url, "UTTU_FRONTIER": redis.url}
        protocols = site.count_protocols(0)
        nginx_before, redis_before = read_cpu_seconds(site.pid), read_cpu_seconds(redis.pid) if redis else 0.0
        meter = UseMeter()
        usage = measure(contestant.command, folder, environment, limit)
        machine = meter.read()
        nginx = read_cpu_seconds(site.pid) - nginx_before
        redis_cpu = (read_cpu_seconds(redis.pid) if redis else 0.0) - redis_before
        if usage.status != 0:
            lines = (folder / "log.txt").read_text(errors="replace").strip().splitlines()
            failure = f"exit code {usage.status}: {lines[-1] if lines else 'no output'}"
        else:
            failure = find_problem(folder / "out.jsonl", expected)
    if failure:
        return Run(name=contestant.name, round=number, failure=failure)
    protocols = site.count_protocols(protocols.total() + pages) - protocols
    others = max(machine.busy - usage.cpu - nginx - redis_cpu, 0.0)
    return Run(
        name=contestant.name,
        round=number,
        seconds=round(usage.seconds, 3),
        pages_per_second=round(pages / usage.seconds, 1),
        cpu_us=round(usage.cpu / pages * 1e6, 1),
        nginx_us=round(nginx / pages * 1e6, 1),
        redis_us=round(redis_cpu / pages * 1e6, 1),
        peak_mb=round(usage.peak / 1e6, 1),
        stolen=machine.stolen,
        other=round(others / (usage.seconds * machine.cores) * 100, 1),
        protocol=", ".join(sorted(protocols)),
    )


def find_problem(file: Path, expected: set[Row]) -> str:
    """Why the rows in ``file`` are not exactly the expected ones; empty if they are."""
    try:
        found = [Row(**msgspec.json.decode(line)) for line in file.read_bytes().splitlines()]
    except (OSError, TypeError, msgspec.DecodeError) as error:
        return f"cannot read its rows: {error}"
    different = set(found) ^ expected
    if different:
        return f"{len(different)} rows are missing or wrong, for example for {min(different).url}"
    if len(found) != len(expected):
        return f"{len(found) - len(expected)} rows too many: pages were visited twice"
    return ""
