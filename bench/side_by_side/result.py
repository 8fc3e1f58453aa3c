"""The result of a scenario: medians and ratios of its runs, the file it is saved in, and the README's table of all."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from bench.side_by_side.rounds import Run
from bench.side_by_side.scenarios import (
    BARE,
    COLLY,
    SCENARIOS,
    SCRAPY,
    SCRAPY_JOBDIR,
    SCRAPY_REDIS,
    UTTU,
    UTTU_REDIS,
    UTTU_REDIS_TWO,
    UTTU_TWO,
    Scenario,
)

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
    """Medians of a contestant's runs; ``ratio`` is its speed divided by Scrapy's. See :class:`Run` for the units."""

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
    other: float | None = None
    protocol: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a file in ``bench/results`` holds. The fields with defaults are missing in older files."""

    date: str
    machine: dict[str, str | int]
    pages: int
    mean_bytes: int = 6_000
    versions: dict[str, str]
    medians: list[Median]
    ratios: dict[str, float | None]
    runs: list[Run]

    def save(self, folder: Path, scenario: Scenario) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        file = _file(folder, scenario)
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        return file


def load_result(folder: Path, scenario: Scenario) -> Result:
    return msgspec.json.decode(_file(folder, scenario).read_bytes(), type=Result)


def _file(folder: Path, scenario: Scenario) -> Path:
    return folder / f"{scenario.result_name}.json"


def compute_medians(runs: Sequence[Run]) -> list[Median]:
    """One for each contestant that finished a run, the fastest first."""
    good = [run for run in runs if not run.failure]
    names = dict.fromkeys(run.name for run in good)
    found = [_median([run for run in good if run.name == name], compute_ratio(good, name, SCRAPY)) for name in names]
    return sorted(found, key=lambda each: each.pages_per_second, reverse=True)


def _median(runs: list[Run], ratio: float | None) -> Median:
    rates = [run.pages_per_second for run in runs]
    others = [run.other for run in runs if run.other is not None]
    return Median(
        name=runs[0].name,
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
        other=statistics.median(others) if others else None,
        protocol=", ".join(sorted({run.protocol for run in runs})),
    )


def compute_ratio(runs: Iterable[Run], one: str, other: str) -> float | None:
    """The speed of ``one`` divided by the speed of ``other``; None if no round has both.

    The median of the ratios within each round, because the machine's speed changes from round to round. If a
    contestant ran several times in a round, the median of these runs counts.
    """
    speeds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for run in runs:
        if not run.failure:
            speeds[run.name, run.round].append(run.pages_per_second)
    rates = {place: statistics.median(found) for place, found in speeds.items()}
    ratios = [
        rate / rates[other, number]
        for (name, number), rate in rates.items()
        if name == one and (other, number) in rates
    ]
    return round(statistics.median(ratios), 3) if ratios else None


def compute_ratios(runs: Sequence[Run]) -> dict[str, float | None]:
    """The ratios of the pairs in ``_RATIOS`` whose contestants both ran."""
    names = {run.name for run in runs}
    return {f"{one} / {other}": compute_ratio(runs, one, other) for one, other in _RATIOS if {one, other} <= names}


def format_readme_table(folder: Path) -> str:
    """The README's table in Markdown: a row for each scenario that has a result in ``folder``."""
    lines = [
        "| pages | Uttu | bare loop | Scrapy | Uttu / Scrapy | CPU a page: Uttu | bare loop | Scrapy | Scrapy / Uttu |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for scenario in SCENARIOS.values():
        if not _file(folder, scenario).exists():
            continue
        result = load_result(folder, scenario)
        medians = {each.name: each for each in result.medians}
        uttu, bare, scrapy = (medians[name] for name in (UTTU.name, BARE.name, SCRAPY))
        assert uttu.ratio is not None
        rates = [f"{each.pages_per_second:,.0f}/s" for each in (uttu, bare, scrapy)]
        costs = [_format_cost(each.cpu_us) for each in (uttu, bare, scrapy)]
        cells = [
            f"{scenario.label} ({result.mean_bytes / 1000:.0f} KB)",
            *rates,
            f"**{uttu.ratio:.1f}**",
            *costs,
            f"{scrapy.cpu_us / uttu.cpu_us:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _format_cost(microseconds: float) -> str:
    return f"{microseconds / 1000:.2f} ms"
