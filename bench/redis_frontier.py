"""What one Redis server can feed, and what a URL costs it.

    python bench/redis_frontier.py [--kind redis|valkey] [--clients 2] [--seconds 10] [--abroad]

*Speed*: clients do nothing but lease pages and settle them, 32 links a page of which one in ten is new: the engine is
left out, but not its memory of known links, which spares the server the others. New links lead to the page's own host,
as most do, or with ``--abroad`` to any of 2,000. The server has one core; its own share of it is measured beside.
*Memory*: 400,000 URLs over 20,000 hosts, queued and seen, by the server's INFO.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import time
from typing import Any

import uvloop

from weft.engine.gate import Known
from weft.frontier.base import Rules
from weft.frontier.redis.depot import RedisDepot
from weft.model import Done, Lease, Pace, Request
from weft.testing.servers import RedisServer

LINKS, NEW = 32, 0.1
HOSTS, BATCH = 2000, 256
RULES = Rules(pace=Pace(0.0, 0))
URLS, MEMORY_HOSTS = 400_000, 20_000


def request(number: int, hosts: int) -> Request:
    return article(number, f"host{number % hosts}.example")


def article(number: int, host: str) -> Request:
    return Request(url=f"https://{host}/articles/{number}/a-title-of-some-length", depth=3)


async def client(url: str, index: int, seconds: float, abroad: bool) -> int:
    depot = await RedisDepot.connect(url)
    frontier = (await depot.open("bench", RULES)).frontier
    known = Known()
    number, owed, settled = (index + 1) * 1_000_000_000, 0.0, 0
    old = [request(each, HOSTS) for each in range(LINKS * 1000)]
    known.update(each.fingerprint for each in old)
    end = time.monotonic() + seconds

    def children(lease: Lease) -> tuple[Request, ...]:
        nonlocal number, owed
        owed += LINKS * NEW
        fresh = int(owed)
        owed -= fresh
        numbers = range(number, number + fresh)
        links = [request(each, HOSTS) if abroad else article(each, lease.lane) for each in numbers]
        number += fresh
        first = lease.id * LINKS % 30_000
        links += old[first : first + LINKS - fresh]
        return tuple([link for link in links if link.fingerprint not in known])

    while time.monotonic() < end:
        leases = await frontier.lease(BATCH, f"client-{index}")
        outcomes = [Done(lease=lease, children=children(lease), status=200, size=6000) for lease in leases]
        await frontier.settle(outcomes)
        for outcome in outcomes:
            known.update([child.fingerprint for child in outcome.children])
        settled += len(leases)
    await depot.close()
    return settled


def run_client(url: str, index: int, seconds: float, abroad: bool, results: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results.put(runner.run(client(url, index, seconds, abroad)))


async def seed(url: str, crawl: str, count: int, hosts: int) -> None:
    depot = await RedisDepot.connect(url)
    frontier = (await depot.create(crawl, RULES)).frontier
    for first in range(0, count, 2000):
        await frontier.put([request(number, hosts) for number in range(first, min(first + 2000, count))])
    await depot.close()


def cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def speed(kind: str, clients: int, seconds: float, abroad: bool) -> dict[str, Any]:
    with RedisServer(kind) as server:
        asyncio.run(seed(server.url, "bench", 100_000, HOSTS))
        results: Any = multiprocessing.Queue()
        before = cpu(server.pid)
        began = time.monotonic()
        processes = [
            multiprocessing.Process(target=run_client, args=(server.url, index, seconds, abroad, results))
            for index in range(clients)
        ]
        for process in processes:
            process.start()
        pages = sum(results.get() for _ in processes)
        elapsed, used = time.monotonic() - began, cpu(server.pid) - before
        for process in processes:
            process.join()
    return {
        "pages_per_second": round(pages / elapsed),
        "server_cpu": round(used / elapsed, 2),
        "server_us_per_page": round(used / pages * 1e6, 1),
    }


def memory(kind: str) -> dict[str, Any]:
    with RedisServer(kind) as server:
        before = int(server.info("memory")["used_memory"])
        asyncio.run(seed(server.url, "bench", URLS, MEMORY_HOSTS))
        used = int(server.info("memory")["used_memory"]) - before
    return {"urls": URLS, "hosts": MEMORY_HOSTS, "bytes_per_url": round(used / URLS, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="redis", choices=["redis", "valkey"])
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--abroad", action="store_true")
    options = parser.parse_args()
    print(json.dumps({"kind": options.kind, "memory": memory(options.kind)}))
    result = speed(options.kind, options.clients, options.seconds, options.abroad)
    print(json.dumps({"kind": options.kind, "abroad": options.abroad, "speed": result}))


if __name__ == "__main__":
    main()
