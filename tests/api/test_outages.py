"""A store that is killed shows within two seconds, holds up nobody, and comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.running import SAID_SECONDS, SLACK_SECONDS, Dashboard, run_dashboard
from tests.api.test_streams import Listener
from tests.harness.servers import RedisServer
from uttu.frontier.base import Rules
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.testing.waiting import wait_until


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer("any", appendonly=True) as server:
        asyncio.run(_make(server.url))
        yield server


async def _make(url: str) -> None:
    catalog = await RedisCatalog.connect(url)
    store = await catalog.create("remote", Rules())
    await catalog.keep("remote")
    await store.frontier.close()
    await catalog.close()


@pytest.fixture
def both(folder: Path, redis: RedisServer) -> Iterator[Dashboard]:
    """A dashboard that watches the folder and Redis, also as a broker."""
    Path("uttu.toml").write_text(f'[dashboard]\nstores = ["sqlite:.", "{redis.url}"]\nbuses = ["{redis.url}"]\n')
    with run_dashboard(folder) as running:
        yield running


def test_redis_is_killed_and_comes_back(both: Dashboard, redis: RedisServer) -> None:
    remote = next(name for name in both.context.stores if name.startswith("redis"))
    found = both.get("/api/v1/crawls").json
    assert {row["status"]["name"] for row in found["crawls"]} == {"shop", "remote"}
    assert both.get(f"/api/v1/buses/{remote}/groups").status == 200
    with Listener(both) as listener:
        redis.kill()
        killed = time.monotonic()
        _, notice = listener.next()
        assert time.monotonic() - killed < SAID_SECONDS + SLACK_SECONDS
        assert (notice["store"], notice["state"]) == (remote, "away")
        wait_until(lambda: both.get("/api/v1/overview").json["buses"][0]["error"], "the broker is away", 10)
        for path in ("/api/v1/overview", "/", f"/crawls/{remote}/remote", f"/queues/{remote}"):
            asked = time.monotonic()
            answer = both.get(path)
            assert time.monotonic() - asked < 2.5, path
            assert answer.status in (200, 503), path
        overview = both.get("/api/v1/overview").json
        assert [bool(each["error"]) for each in overview["stores"]] == [False, True]
        assert [bool(each["error"]) for each in overview["buses"]] == [True]
        assert [row["status"]["name"] for row in overview["crawls"]] == ["shop"]
        health = both.get("/healthz")
        assert health.status == 503
        assert health.json["stores"] == {"local": "ok", remote: "away"}
        answer = both.get(f"/api/v1/crawls/{remote}/remote")
        assert answer.status == 503
        assert answer.headers["retry-after"]
        began = time.monotonic()
        assert both.get("/api/v1/crawls/local/shop").status == 200
        assert time.monotonic() - began < 1
        assert both.post(f"/api/v1/crawls/{remote}/remote:stop").status == 503
        redis.restart()
        wait_until(lambda: both.get("/healthz").status == 200, "the store is back", 10)
        assert both.get(f"/api/v1/crawls/{remote}/remote").status == 200
        assert listener.next()[1]["state"] == "back"


def test_keys_of_a_crawl(both: Dashboard) -> None:
    remote = next(name for name in both.context.stores if name.startswith("redis"))
    found = both.get(f"/api/v1/crawls/{remote}/remote/keys").json
    assert all(each["keys"] > 0 and each["bytes"] > 0 for each in found)
    assert found
    for path in (f"/queues/{remote}", f"/crawls/{remote}/remote/settings"):
        answer = both.get(path)
        assert answer.status == 200
        assert found[0]["kind"] in answer.body.decode()
    refused = both.get("/api/v1/crawls/local/shop/keys")
    assert refused.status == 422
    assert "Redis" in refused.json["detail"]


def test_events_by_page(both: Dashboard) -> None:
    for delay in range(5):
        both.post("/api/v1/crawls/local/shop:rate", {"host": "shop.example", "delay": delay})
    path = "/api/v1/crawls/local/shop/events/latest?limit=2"
    first = both.get(path).json
    second = both.get(f"{path}&before={first['next']}").json
    assert [each["fields"]["delay"] for each in first["events"] + second["events"]] == [4, 3, 2, 1]
    last = both.get(f"{path}&before={second['next']}&kind=operator").json
    assert (len(last["events"]), last["next"]) == (1, 0)
    assert both.get(f"{path}&kind=worker").json["events"] == []
    assert both.get("/crawls/local/shop/events?kind=operator").status == 200
