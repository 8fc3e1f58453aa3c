"""scrapy-redis as a store of the benchmark, on a running server. The peers' Python runs this.

    PEERS/python -m bench.frontier.peer --port 6379 --pid 1234 --sizes 100000 1000000

It uses the classes of scrapy-redis as its scheduler does by default: the dupefilter checks each request, new ones are
pushed into the priority queue, and ``pop`` takes pages. There is no lease and no acknowledgement: a page that was
popped is gone. There are no batches: each step is a round trip. Only the filling is pipelined. Prints a JSON line for
each size.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from importlib.metadata import version

import redis
from bench.frontier.sampling import compute_bytes_per_url, read_cpu_seconds, sample
from bench.frontier.urls import HOSTS, url_of
from scrapy import Request, Spider
from scrapy_redis.dupefilter import RFPDupeFilter
from scrapy_redis.queue import PriorityQueue


class BenchSpider(Spider):  # type: ignore[misc]
    name = "bench"


class ScrapyRedisStore:
    """See :class:`bench.frontier.sampling.Store`."""

    def __init__(self, port: int, pid: int, hosts: int) -> None:
        self._server = redis.StrictRedis(port=port)
        self._queue = PriorityQueue(self._server, BenchSpider(), "%(spider)s:requests")
        self._seen = RFPDupeFilter(self._server, "bench:dupefilter")
        self._pid = pid
        self._hosts = hosts

    def make(self, numbers: Iterable[int]) -> list[Request]:
        return [Request(url_of(number, self._hosts), meta={"depth": 3}) for number in numbers]

    def fill(self, requests: Sequence[Request]) -> None:
        with self._server.pipeline(transaction=False) as pipeline:
            self._queue.server = self._seen.server = pipeline
            for request in requests:
                self._seen.request_seen(request)
                self._queue.push(request)
            pipeline.execute()
        self._queue.server = self._seen.server = self._server

    def put(self, requests: Sequence[Request]) -> int:
        new = 0
        for request in requests:
            if not self._seen.request_seen(request):
                self._queue.push(request)
                new += 1
        return new

    def work(self, count: int) -> int:
        return sum(self._queue.pop() is not None for _ in range(count))

    def size(self) -> int:
        return int(self._server.info("memory")["used_memory"])

    def cpu(self) -> float:
        return read_cpu_seconds(self._pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--sizes", type=int, nargs="*", default=[])
    parser.add_argument(
        "--weigh", type=int, default=0, help="put this number of URLs, and only print their bytes per URL"
    )
    parser.add_argument("--hosts", type=int, default=HOSTS)
    options = parser.parse_args()
    versions = {name: version(name) for name in ("scrapy-redis", "scrapy", "redis")}
    store = ScrapyRedisStore(options.port, options.pid, options.hosts)
    if options.weigh:
        print(json.dumps({"bytes_per_url": compute_bytes_per_url(store, options.weigh), "versions": versions}))
    for row in sample(store, options.sizes):
        print(json.dumps({**row, "versions": versions}), flush=True)


if __name__ == "__main__":
    main()
