"""What comes out of the rounds: medians and ratios."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from bench.side_by_side.contestants import (
    BARE,
    COLLY,
    SCRAPY,
    SCRAPY_JOBDIR,
    SCRAPY_REDIS,
    UTTU,
    UTTU_REDIS,
    UTTU_REDIS_TWO,
    UTTU_TWO,
)
from bench.side_by_side.rounds import Run

_RATIOS: Final = (
    (UTTU.name, SCRAPY),
    (UTTU.name, SCRAPY_JOBDIR),
    (UTTU.name, BARE.name),
    (UTTU.name, COLLY),
    (UTTU_REDIS.name, SCRAPY_REDIS),
    (UTTU_TWO.name, UTTU.name),
    (UTTU_REDIS_TWO.name, UTTU_REDIS.name),
)


class Median(msgspec.Struct, frozen=True, kw_only=True):
    """The middle of a contestant's rounds; ``ratio`` is its speed over that of Scrapy."""

    name: str
    rounds: int
    pages_per_second: float
    slowest: float
    fastest: float
    cpu_us: float
    nginx_us: float
    redis_us: float
    peak_mb: float
    stolen: float
    ratio: float | None


def medians(runs: Sequence[Run]) -> list[Median]:
    """Of everyone who finished a round, the fastest first."""
    good = [run for run in runs if not run.failure]
    names = dict.fromkeys(run.name for run in good)
    found = [_median(name, [run for run in good if run.name == name], ratio(good, name, SCRAPY)) for name in names]
    return sorted(found, key=lambda each: each.pages_per_second, reverse=True)


def _median(name: str, runs: list[Run], ratio: float | None) -> Median:
    rates = [run.pages_per_second for run in runs]
    return Median(
        name=name,
        rounds=len(runs),
        pages_per_second=statistics.median(rates),
        slowest=min(rates),
        fastest=max(rates),
        cpu_us=statistics.median([run.cpu_us for run in runs]),
        nginx_us=statistics.median([run.nginx_us for run in runs]),
        redis_us=statistics.median([run.redis_us for run in runs]),
        peak_mb=statistics.median([run.peak_mb for run in runs]),
        stolen=statistics.median([run.stolen for run in runs]),
        ratio=ratio,
    )


def ratio(runs: Iterable[Run], one: str, other: str) -> float | None:
    """How many times the speed of ``other`` the speed of ``one`` is; None if they share no round.

    The median of the ratios within each round, since the machine's speed changes from round to round. Who played
    several times in a round has the median of these there.
    """
    played: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for run in runs:
        if not run.failure:
            played[run.name, run.round].append(run.pages_per_second)
    rates = {place: statistics.median(speeds) for place, speeds in played.items()}
    ratios = [
        rate / rates[other, number]
        for (name, number), rate in rates.items()
        if name == one and (other, number) in rates
    ]
    return round(statistics.median(ratios), 3) if ratios else None


def ratios(runs: Sequence[Run]) -> dict[str, float | None]:
    """Those that are worth a look."""
    return {f"{one} / {other}": ratio(runs, one, other) for one, other in _RATIOS}
