"""The memory of a URL that is queued and seen, in a broad crawl on one Redis: Uttu and scrapy-redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.common import table
from bench.frontier.cost import run_peer
from bench.frontier.sampling import compute_bytes_per_url
from bench.frontier.stores import redis_store
from tests.harness.servers import RedisServer

URLS, HOSTS = 400_000, 20_000
_GOAL = 0.3


def measure(stores: list[str], kind: Any, peers: Path) -> dict[str, Any]:
    """Bytes per URL, from the server's INFO."""
    found: dict[str, Any] = {"urls": URLS, "hosts": HOSTS, "kind": kind}
    if "redis" in stores:
        with RedisServer(kind) as server, redis_store(server, HOSTS) as store:
            found["redis"] = compute_bytes_per_url(store, URLS)
    if "scrapy-redis" in stores:
        with RedisServer(kind) as server:
            (row,) = run_peer(peers, server, "--weigh", str(URLS), "--hosts", str(HOSTS))
            found |= {"scrapy-redis": row["bytes_per_url"], "versions": row["versions"]}
    rows = [[store, found[store]] for store in ("redis", "scrapy-redis") if store in found]
    table(f"Bytes per URL on {kind}: {URLS:,} URLs over {HOSTS:,} hosts", ["store", "bytes"], rows)
    if len(rows) == 2:
        found["share"] = round(found["redis"] / found["scrapy-redis"], 3)
        print(f"{found['share']} of scrapy-redis's; the goal is {_GOAL} or less")
    return found
