"""Publishing and consuming through the bus, compared with the bare client library of each broker.

    python -m bench.bus [redis] [rabbitmq] [kafka] [--messages 20000] [--rounds 3]

Messages of 300 bytes are published in batches of 100, each batch confirmed before the next. Then one subscriber
consumes and acknowledges them in batches of 100, timed from the first message to the last. On Kafka the bus commits
after every 500 messages, the bare client after each batch. The bare client and the bus run in turns on the same server,
with a new topic in every round. Client and server share the machine. The goal: the bus reaches at least 60 % of the
bare client's rate.
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

GOAL = 0.6
SERVERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "redis": lambda: RedisServer("redis", appendonly=True),
    "rabbitmq": RabbitServer,
    "kafka": KafkaServer,
}
BARE: dict[str, Callable[[str], Client]] = {"redis": BareRedis, "rabbitmq": BareRabbit, "kafka": BareKafka}


async def run(client: Client, topic: str, count: int) -> tuple[float, float]:
    """Messages a second, published and consumed. The first batch is not timed, because it opens the connections."""
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
            found[name].append(await run(make(url), f"bench.{name}{number}", count))
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
            share = statistics.median(ours / theirs for theirs, ours in zip(bare, bus, strict=True))
            rows.append([kind, what, round(statistics.median(bare)), round(statistics.median(bus)), share])
    table("Messages a second", ["broker", "what", "bare client", "Uttu's bus", "share"], rows)
    print(f"the goal is {GOAL:.0%} or more")
    save("bus", results)


if __name__ == "__main__":
    main()
