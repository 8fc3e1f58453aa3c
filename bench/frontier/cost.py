"""The cost of a URL as the crawl grows: on SQLite, on Redis, and for scrapy-redis's classes on the same Redis.

Both use Redis without persistence (``appendonly no``).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.common import table
from bench.frontier.sampling import sample
from bench.frontier.stores import redis_store, sqlite_store
from tests.harness.servers import RedisServer

STORES = ("sqlite", "redis", "scrapy-redis")
_ROOT = Path(__file__).parents[2]
# For ten million, scrapy-redis would need an hour and several gigabytes.
_LARGEST_FOR_PEER = 1_000_000
_STEPS = {"new": "new", "known": "known", "lease_settle": "lease+settle"}
_GOALS = {"sqlite": 4.0, "redis": 2.0}


def measure(store: str, sizes: Sequence[int], kind: Any, peers: Path) -> list[dict[str, Any]]:
    """A row for each size."""
    if store == "sqlite":
        with sqlite_store() as opened:
            return list(sample(opened, sizes))
    with RedisServer(kind) as server:
        if store == "redis":
            with redis_store(server) as opened:
                return list(sample(opened, sizes))
        return run_peer(peers, server, "--sizes", *(str(size) for size in sizes if size <= _LARGEST_FOR_PEER))


def run_peer(peers: Path, server: RedisServer, *options: str) -> list[dict[str, Any]]:
    """Run ``bench.frontier.peer`` with the peers' Python on this server. Returns the rows that it prints."""
    address = ["--port", str(server.port), "--pid", str(server.pid)]
    command = [str(peers), "-m", "bench.frontier.peer", *address, *options]
    done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def show(found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the rows of each store, and how the costs grow from the first size to the last."""
    kinds = {"on the clock": "_us", "of the processor": "_cpu_us"}
    for kind, unit in kinds.items():
        figures = [step + unit for step in _STEPS]
        table(
            f"The cost of a URL, in microseconds {kind}",
            ["store", "seen", *_STEPS.values(), "bytes per URL"],
            [
                [store, row["seen"], *(row[name] for name in figures), row["bytes_per_url"]]
                for store, rows in found.items()
                for row in rows
            ],
        )
        table(
            f"The cost at the last size divided by that at the first, {kind}",
            ["store", "from", "to", *_STEPS.values(), "goal: at most"],
            [
                [store, first["seen"], last["seen"], *(last[name] / first[name] for name in figures), _GOALS.get(store)]
                for store, first, last in ((store, rows[0], rows[-1]) for store, rows in found.items() if rows)
                if first is not last
            ],
        )
