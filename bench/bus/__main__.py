"""Publishing and consuming through the bus, beside the bare client library of each broker.

    python -m bench.bus [redis] [rabbitmq] [kafka] [--messages 20000] [--rounds 3]

Messages of 300 bytes, published in batches of 100, each batch confirmed before the next; then consumed by one
subscriber and acknowledged in batches of 100, timed from when the first ones arrive until the last do. On Kafka the bus
commits after 500 of them, and the bare client after each batch.
Bare and bus in turn, on a server that both use, each with a topic of its own in every round. Client and server share
the machine. The bar: the bus does at least 60 % of the bare.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import uvloop
from bench.bus.bare import BareKafka, BareRabbit, BareRedis
from bench.bus.client import BATCH, Client
from bench.bus.uttu_bus import UttuBus
from bench.common import save, table
from tests.harness.servers import KafkaServer, RabbitServer, RedisServer

WANTED = 0.6
SERVERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "redis": lambda: RedisServer("redis", appendonly=True),
    "rabbitmq": RabbitServer,
    "kafka": KafkaServer,
}
BARE: dict[str, Callable[[str], Client]] = {"redis": BareRedis, "rabbitmq": BareRabbit, "kafka": BareKafka}


async def play(client: Client, topic: str, count: int) -> tuple[float, float]:
    """Messages a second, published and consumed. The first batch is not timed: connections are made for it."""
    await client.open(topic)
    try:
        await client.publish(BATCH)
        began = time.monotonic()
        await client.publish(count)
        published = count / (time.monotonic() - began)
        return published, count / await client.consume(BATCH + count)
    finally:
        await client.close()


async def compare(kind: str, url: str, count: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {"bare": [], "bus": []}
    for number in range(rounds):
        for name, make in (("bare", BARE[kind]), ("bus", UttuBus)):
            found[name].append(await play(make(url), f"bench.{name}{number}", count))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brokers", nargs="*", default=list(SERVERS), metavar="BROKER")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows: list[list[Any]] = []
    results: dict[str, Any] = {"messages": options.messages, "brokers": {}}
    for kind in options.brokers:
        with SERVERS[kind]() as server:
            found = uvloop.run(compare(kind, server.url, options.messages, options.rounds))
        results["brokers"][kind] = found
        for index, what in enumerate(("publish", "consume")):
            bare, bus = ([each[index] for each in found[name]] for name in ("bare", "bus"))
            share = statistics.median(mine / theirs for theirs, mine in zip(bare, bus, strict=True))
            rows.append([kind, what, round(statistics.median(bare)), round(statistics.median(bus)), share])
    table("Messages a second", ["broker", "what", "bare client", "Uttu's bus", "share"], rows)
    print(f"at least {WANTED:.0%} are wanted")
    save("bus", results)


if __name__ == "__main__":
    main()
