"""The memory of a URL that is queued and seen: a broad crawl on one Redis, beside scrapy-redis on the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.common import table
from bench.frontier.cost import run_peer
from bench.frontier.sampling import weighed
from bench.frontier.stores import redis_store
from tests.harness.servers import RedisServer

URLS, HOSTS = 400_000, 20_000
_BAR = 0.3


def measure(stores: list[str], kind: Any, peers: Path) -> dict[str, Any]:
    """Bytes per URL, by the server's INFO."""
    found: dict[str, Any] = {"urls": URLS, "hosts": HOSTS, "kind": kind}
    if "redis" in stores:
        with RedisServer(kind) as server, redis_store(server, HOSTS) as store:
            found["redis"] = weighed(store, URLS)
    if "scrapy-redis" in stores:
        with RedisServer(kind) as server:
            (said,) = run_peer(peers, server, "--weigh", str(URLS), "--hosts", str(HOSTS))
            found |= {"scrapy-redis": said["bytes_per_url"], "versions": said["versions"]}
    rows = [[store, found[store]] for store in ("redis", "scrapy-redis") if store in found]
    table(f"Bytes per URL on {kind}: {URLS:,} URLs over {HOSTS:,} hosts", ["store", "bytes"], rows)
    if len(rows) == 2:
        found["share"] = round(found["redis"] / found["scrapy-redis"], 3)
        print(f"{found['share']} of scrapy-redis's; at most {_BAR} is wanted")
    return found
