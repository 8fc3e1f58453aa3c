"""The dashboard over a large crawl that runs: how long pages take, and what the crawl loses.

    python -m bench.dashboard [--stores sqlite redis] [--urls 3000000] [--keep FOLDER]

Builds a crawl of ``--urls`` URLs over 100,000 hosts, a third of them dead letters, and 49 small ones beside it. One
process leases and settles pages of it as fast as it can, and ``uttu dashboard`` shows it. ``visits``: milliseconds of
every page and tab. ``stories``: until the page of a URL answers, and until it has the story. ``loss``: pages a second
of the crawl with a dashboard that nobody looks at, with an open page, and while it is stopped, in turns. Prints tables
and writes ``bench/results/dashboard.json``. Building takes minutes; with ``--keep`` the next run copies what was built.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop
from bench.common import RESULTS, compile_uttu, save, table
from bench.dashboard.crawl import Running, read_cpu_seconds, run_crawl
from bench.dashboard.stores import CRAWL, Project, open_project
from bench.dashboard.visits import Dashboard, list_addresses, run_dashboard, time_stories, time_visits
from bench.frontier.inspect import LANES, RULES
from bench.frontier.urls import url_of

from uttu.model.inspection import DeadQuery

PARTS: Final = ("visits", "stories", "loss")
_SETTLE_SECONDS: Final = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help="visits, stories, loss; all without any")
    parser.add_argument("--stores", nargs="+", choices=["sqlite", "redis"], default=["sqlite", "redis"])
    parser.add_argument("--kind", default="redis", choices=["redis", "valkey"])
    parser.add_argument("--urls", type=int, default=3_000_000)
    parser.add_argument("--crawls", type=int, default=50, help="all crawls of the store")
    parser.add_argument("--requests", type=int, default=20, help="of each page")
    parser.add_argument("--gap", type=float, default=0.6, help="seconds between two requests")
    parser.add_argument("--rounds", type=int, default=40, help="pairs of slices of the loss")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each slice of the loss")
    parser.add_argument("--keep", type=Path, help="a folder for the crawls that are built")
    options = parser.parse_args()
    parts = options.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part: {', '.join(sorted(unknown))}; known are {', '.join(PARTS)}")
    compile_uttu()
    size = {"urls": options.urls, "hosts": LANES, "crawls": options.crawls}
    found = _load_results(size)
    for name in options.stores:
        with open_project(name, options.kind, options.urls, options.crawls, options.keep) as project:
            found[name] = found.get(name, {}) | _measure(name, project, parts, options)
        save("dashboard", found)


def _load_results(size: dict[str, Any]) -> dict[str, Any]:
    """Results of an earlier run at this size: parts that are not measured again stay."""
    file = RESULTS / "dashboard.json"
    stored = json.loads(file.read_text()) if file.exists() else {}
    if any(stored.get(name) != value for name, value in size.items()):
        return size
    return size | {name: stored[name] for name in ("sqlite", "redis") if name in stored}


def _measure(name: str, project: Project, parts: Any, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with run_crawl(project) as crawl:
        if "visits" in parts or "stories" in parts:
            found["visited"] = _describe_moment()
            with run_dashboard(project) as dashboard:
                found["memory_mb_at_start"] = dashboard.read_memory_mb()["now"]
                if "stories" in parts:
                    urls = _choose_urls(project, options)
                    stories = time_stories(dashboard, project, urls, options.gap)
                    found["stories_ms"] = stories
                    rows = [[kind, *each["page"].values(), *each["story"].values()] for kind, each in stories.items()]
                    heads = ["the URL is", *(f"{what} {key}" for what in ("page", "story") for key in _KEYS)]
                    table(f"Milliseconds until a URL is explained, {name}", heads, rows)
                if "visits" in parts:
                    addresses = list_addresses(project, dashboard)
                    visits = time_visits(dashboard, addresses, options.requests, options.gap)
                    found["visits_ms"] = visits
                    rows = [[page, *visits[page].values()] for page in addresses]
                    table(f"Milliseconds of a page, {name}", ["page", *_KEYS], rows)
                    for page, status in visits.get("failed", {}).items():
                        print(f"{page} answered with status {status}")
                found["memory_mb"] = dashboard.read_memory_mb()
        if "loss" in parts:
            found["loss"] = _describe_moment() | _measure_loss(name, project, crawl, options)
    return found


def _describe_moment() -> dict[str, Any]:
    return {"at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "load_before": round(os.getloadavg()[0], 2)}


_KEYS: Final = ("p50", "p95", "max")


def _choose_urls(project: Project, options: argparse.Namespace) -> dict[str, list[str]]:
    """URLs by their state. Pages that were found last are fetched last."""
    count = options.requests
    numbers = range(options.urls - 1, options.urls - 1 - count, -1)

    async def list_dead() -> list[str]:
        async with project.connect() as catalog:
            store = await catalog.open(CRAWL, RULES)
            page = await store.inspector.dead(DeadQuery(limit=20_000))
            await store.frontier.close()
        # On Redis each takes seconds, so a quarter has to do.
        some = max(1, count // 4)
        return [letter.request.url for letter in page.letters][:: max(1, 20_000 // some)][:some]

    return {
        "pending": [url_of(n, LANES if n % 3 else LANES // 2) for n in numbers],
        "dead": uvloop.run(list_dead()),
        "unknown": [f"https://host{n}.example/never/seen" for n in range(count)],
    }


def _measure_loss(name: str, project: Project, crawl: Running, options: argparse.Namespace) -> dict[str, Any]:
    """Pages a second with the dashboard, and while it is stopped (SIGSTOP), in slices that take turns.

    The rate of the crawl changes by a fifth within seconds on a virtual machine. Only short slices that are compared
    with their neighbours show a difference of a few percent.
    """
    states = {"nobody looks": "", "overview": "/", "crawl": f"/crawls/{project.store}/{CRAWL}"}
    rows: list[list[Any]] = []
    found: dict[str, Any] = {}
    for state, path in states.items():
        rates: list[tuple[float, float]] = []
        shares: list[float] = []
        with run_dashboard(project) as dashboard, dashboard.watch(path) if path else contextlib.nullcontext():
            time.sleep(_SETTLE_SECONDS)
            for number in range(options.rounds):
                # The order of the two changes with each pair.
                pair = [_measure_slice(crawl, dashboard, options.seconds, is_running) for is_running in _turns(number)]
                stopped, running = sorted(pair, key=lambda each: each.is_running)
                rates.append((stopped.rate, running.rate))
                shares.append(running.share)
        losses = [100 * (1 - running / stopped) for stopped, running in rates]
        low, high = _estimate_range(losses)
        found[state] = {
            "pages_per_second": round(statistics.median(running for _, running in rates)),
            "pages_per_second_stopped": round(statistics.median(stopped for stopped, _ in rates)),
            "loss_percent": round(statistics.median(losses), 1),
            "loss_percent_range": [round(low, 1), round(high, 1)],
            "dashboard_cpu_percent": round(100 * statistics.median(shares), 1),
        }
        rows.append([state, *found[state].values()])
    heads = ["dashboard", "pages/s", "stopped", "loss %", "90 % range", "its CPU %"]
    table(f"The crawl's rate, {name}", heads, rows)
    return found


class Slice(NamedTuple):
    is_running: bool
    rate: float
    share: float


def _turns(number: int) -> tuple[bool, bool]:
    return (False, True) if number % 2 == 0 else (True, False)


def _measure_slice(crawl: Running, dashboard: Dashboard, seconds: float, is_running: bool) -> Slice:
    os.kill(dashboard.pid, signal.SIGCONT if is_running else signal.SIGSTOP)
    try:
        before = read_cpu_seconds(dashboard.pid)
        rate, _ = crawl.measure(seconds)
        return Slice(is_running, rate, (read_cpu_seconds(dashboard.pid) - before) / seconds)
    finally:
        os.kill(dashboard.pid, signal.SIGCONT)


def _estimate_range(values: Sequence[float]) -> tuple[float, float]:
    """Where the median lies with a probability of 90 %, by drawing samples of the values (bootstrap)."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(2_000))
    return medians[100], medians[-101]


if __name__ == "__main__":
    main()
