"""The frontiers alone, without a crawler.

    python -m bench.frontier [cost] [memory] [load] [inspect] [--sizes 100000 1000000] [--peers .venv-bench/bin/python]

``cost``: microseconds for a new URL, for a known one, and for leasing and settling a page, as the crawl grows.
``memory``: bytes a URL takes on Redis. ``load``: pages a second that clients can lease from one Redis. ``inspect``:
milliseconds that operators wait for lists in a large crawl. All unless some are named. Prints tables and writes
``bench/results/frontier_*.json``. Ten million URLs take half an hour, and at most 1.5 GB on disk and 1.5 GB of memory.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.common import save
from bench.frontier import cost, inspect, load, memory
from tests.harness.servers import RedisServer

PARTS = ("cost", "memory", "load", "inspect")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help="cost, memory, load, inspect")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000], help="URLs seen, growing")
    parser.add_argument("--stores", nargs="+", choices=cost.STORES, default=list(cost.STORES))
    parser.add_argument("--kind", default="redis", choices=["redis", "valkey"])
    parser.add_argument("--peers", type=Path, default=Path(".venv-bench/bin/python"), help="a Python with scrapy-redis")
    parser.add_argument("--clients", type=int, default=2, help="for the load")
    parser.add_argument("--seconds", type=float, default=10.0, help="for the load")
    parser.add_argument("--rounds", type=int, default=3, help="for the load")
    parser.add_argument("--abroad", action="store_true", help="in the load, new links lead to any host")
    parser.add_argument("--inspect-urls", type=int, default=3_000_000, help="URLs of the crawl that is inspected")
    options = parser.parse_args()
    parts = options.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part: {', '.join(sorted(unknown))}; known are {', '.join(PARTS)}")
    stores, peers = options.stores, options.peers.absolute()
    if "scrapy-redis" in stores and not peers.exists():
        print(f"Skipping scrapy-redis: {peers} does not exist")
        stores = [store for store in stores if store != "scrapy-redis"]

    server = {"server": _read_version(options.kind)}
    if "cost" in parts:
        found: dict[str, Any] = {}
        for store in stores:
            found[store] = cost.measure(store, options.sizes, options.kind, peers)
            save("frontier_cost", server | found)
        cost.show(found)
    if "memory" in parts:
        save("frontier_memory", server | memory.measure(stores, options.kind, peers))
    if "load" in parts:
        measured = load.measure(options.kind, options.clients, options.seconds, options.abroad, options.rounds)
        save("frontier_load", server | measured)
    if "inspect" in parts:
        save("frontier_inspect", server | inspect.measure(stores, options.kind, options.inspect_urls))


def _read_version(kind: Any) -> str:
    with RedisServer(kind) as server:
        info = server.info("server")
    return f"{kind} {info.get('valkey_version') or info['redis_version']}"


if __name__ == "__main__":
    main()
