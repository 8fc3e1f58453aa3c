"""The table of what each broker can do is made from the brokers themselves, so that it can't lie.

Each column's capabilities are those by which the contract ran or skipped its tests there. To write the table anew:
``UTTU_WRITE_TABLE=1 pytest tests/bus/test_capabilities.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.harness.servers import RedisServer

from uttu.bus.base import Capability
from uttu.runtime.registry import open_bus

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "bus.md"
BEGIN, END = "<!-- made by tests/bus/test_capabilities.py -->\n", "<!-- end -->\n"


async def test_documented_capabilities_are_those_of_the_brokers(rabbitmq_url: str, kafka_url: str) -> None:
    with RedisServer("redis", appendonly=True) as redis:
        brokers = {
            "Redis, Valkey": redis.url,
            "RabbitMQ": rabbitmq_url,
            "RabbitMQ, `queues=classic`": rabbitmq_url + ("&" if "?" in rabbitmq_url else "?") + "queues=classic",
            "Kafka": kafka_url,
            "`memory:`": "memory:",
        }
        columns = {name: await _capabilities(url) for name, url in brokers.items()}
    lines = [f"| capability | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for capability in Capability:
        cells = ["yes" if capability in has else "no" for has in columns.values()]
        lines.append(f"| `{capability.name}`: {capability.value} | {' | '.join(cells)} |")
    table = "\n".join(lines) + "\n"

    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    shown, _, tail = rest.partition(END)
    if os.environ.get("UTTU_WRITE_TABLE"):
        PAGE.write_text(head + BEGIN + table + END + tail)
    else:
        assert shown == table


async def _capabilities(url: str) -> frozenset[Capability]:
    bus = await open_bus(url)
    try:
        return bus.capabilities
    finally:
        await bus.close()
