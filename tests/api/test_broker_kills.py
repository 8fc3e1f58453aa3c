"""Kill -9 of RabbitMQ and Kafka while their pages are open: pages say so, nothing hangs, and they recover."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.running import SAID_SECONDS, SLACK_SECONDS, Dashboard, run_dashboard
from tests.api.test_kills import LivePage
from tests.harness.servers import KafkaServer, RabbitServer
from uttu.bus import Message, SubscribeOptions, connect
from uttu.testing.waiting import wait_until

# Java and Erlang need this long to start on a machine that does other things as well.
_RESTART_SECONDS = 60.0
_AWAY = "Connection refused|does not answer"


@pytest.fixture(params=[RabbitServer, KafkaServer], ids=["rabbitmq", "kafka"])
def broker(request: pytest.FixtureRequest) -> Iterator[RabbitServer | KafkaServer]:
    """A broker with a group, and one message that waits for it."""
    with request.param() as server:
        asyncio.run(_fill(server.url))
        yield server


async def _fill(url: str) -> None:
    async def ignore(deliveries: object) -> None:
        pass

    bus = await connect(url)
    subscription = await bus.subscribe(SubscribeOptions(topics=("shop",), group="readers"), ignore)
    await subscription.close()
    await bus.publish([Message(topic="shop", payload=b"1")])
    await bus.close()


@pytest.fixture
def dashboard(folder: Path, broker: RabbitServer | KafkaServer) -> Iterator[Dashboard]:
    Path("uttu.toml").write_text(f'[dashboard]\nbuses = ["{broker.url}"]\n')
    with run_dashboard(folder) as running:
        yield running


def _read_error(dashboard: Dashboard) -> str:
    found: str = dashboard.get("/api/v1/overview").json["buses"][0]["error"]
    return found


def test_a_broker_is_killed_while_pages_are_open(dashboard: Dashboard, broker: RabbitServer | KafkaServer) -> None:
    (name,) = dashboard.context.buses
    wait_until(lambda: not _read_error(dashboard), "the broker answers")
    pages = {path: LivePage(dashboard.port, path) for path in ("/", "/queues", f"/queues/{name}")}
    for path, page in pages.items():
        page.wait("readers" if path.endswith(name) else "fragments", 0)
    broker.kill()
    killed = time.monotonic()
    said = {path: page.wait(_AWAY, killed) for path, page in pages.items()}
    assert max(said.values()) < SAID_SECONDS + SLACK_SECONDS, said
    # What needs no broker is as quick as before, also after a while.
    for _ in range(5):
        for path in ("/", "/queues", "/crawls/local/shop", "/api/v1/crawls/local/shop/items"):
            asked = time.monotonic()
            assert dashboard.get(path).status == 200
            assert time.monotonic() - asked < SAID_SECONDS, path
    answer = dashboard.get(f"/queues/{name}")
    assert answer.status == 503
    assert re.search(_AWAY, answer.body.decode())
    asked = time.monotonic()
    assert dashboard.post(f"/api/v1/buses/{name}:publish", {"topic": "shop", "payload": "2"}).status == 503
    assert time.monotonic() - asked < SAID_SECONDS
    broker.restart()
    back = time.monotonic()
    wait_until(lambda: not _read_error(dashboard), "the broker answers again", _RESTART_SECONDS)
    pages[f"/queues/{name}"].wait("readers", back, _RESTART_SECONDS)
    for page in pages.values():
        page.close()
