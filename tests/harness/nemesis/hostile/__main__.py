"""``python -m tests.harness.nemesis.hostile``: try every kind, print what came of each; exit with 1 if a bar is missed.

Kinds that cost little are tried together; if one of their crawls misses a bar, each is tried again alone. One that
misses the bar of the gap alone is tried twice.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.harness.nemesis.hostile import report
from tests.harness.nemesis.hostile.cases import Trial, all_cases, trials
from tests.harness.nemesis.hostile.run import Result, run


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.nemesis.hostile", description=__doc__)
    parser.add_argument("--kinds", default="", help="a regular expression; only kinds whose name has a match")
    parser.add_argument("--jobs", type=int, default=1, help="crawls at once (%(default)s); more disturb one another")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for a hostile page to end (%(default)s)")
    parser.add_argument("--report", type=Path, help="a file for the results, as JSON lines")
    parser.add_argument("--from-report", type=Path, help="take the results from such a file instead of crawling")
    parser.add_argument("--before", type=Path, help="the results of an earlier version, to stand beside these")
    parser.add_argument("--table", type=Path, help="a page to write the table into, between its marks")
    return parser.parse_args()


def try_all(planned: Sequence[Trial], jobs: int) -> Iterator[Result]:
    """The results as they come."""
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for results in pool.map(_try, planned):
                yield from results
        finally:
            pool.shutdown(cancel_futures=True)


def _try(trial: Trial) -> list[Result]:
    result = run(trial)
    print(report.line(result), flush=True)
    if len(trial.cases) == 1 and len(result.findings) == 1 and result.gap > trial.gap_seconds:
        # Other programs may have had the processors, so a gap counts if it is there twice.
        again = run(trial)
        print(report.line(again), flush=True)
        return [min(result, again, key=lambda each: each.gap)]
    if not result.findings or len(trial.cases) == 1:
        return [result]
    return [found for each in trial.split for found in _try(each)]


def main() -> int:
    given = arguments()
    # As at Ctrl-C, crawls under way are waited for, so that none is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    cases = [case for case in all_cases() if re.search(given.kinds, case.name)]
    if given.from_report:
        results = report.load(given.from_report)
    else:
        results = []
        for result in try_all(list(trials(cases, patience=given.patience)), given.jobs):
            results.append(result)
            if given.report:
                report.save(given.report, results)
        bad = sum(bool(result.findings) for result in results)
        print(f"{len(results) - bad} of {len(results)} crawls within the bars, {time.monotonic() - began:.0f} s")
    if given.table:
        before = report.load(given.before) if given.before else []
        report.write(given.table, report.table(cases, results, before))
    return 1 if any(result.findings for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
