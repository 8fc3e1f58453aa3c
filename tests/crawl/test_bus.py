"""Crawls that use a message broker: items out, events out, word from the operator in, start URLs in."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.crawl.conftest import Project, wait_for
from tests.harness.servers import RedisServer
from uttu.bus.base import REASON_HEADER, Bus
from uttu.runtime.registry import open_bus
from uttu.testing.contracts.broker import Inbox, eventually, message, subscribe_to
from uttu.testing.site import Site, SiteProcess

PAGES = 400
PATHS = {f"/p/{number}" for number in range(PAGES)}


class Setup:
    """A crawl of its own name, a site, and a broker."""

    def __init__(self, project: Project, site: SiteProcess, url: str) -> None:
        self.project, self.site, self.url = project, site, url
        self.name = f"t{secrets.token_hex(6)}"
        self.words = ["crawl", "spider.py", "--crawl", self.name]
        self.environment = {"START": site.url + "p/0"}

    def topic(self, topic: str) -> str:
        return f"{self.url}{'&' if '?' in self.url else '?'}topic={topic}"

    @asynccontextmanager
    async def bus(self) -> AsyncIterator[Bus]:
        bus = await open_bus(self.url)
        try:
            yield bus
        finally:
            await bus.close()

    def forget(self, *groups: str) -> None:
        async def run() -> None:
            async with self.bus() as bus:
                for group in groups:
                    await bus.purge(group, forget=True)

        asyncio.run(run())


on_every_broker = pytest.mark.parametrize("url", ["redis_url", "rabbitmq_url", "kafka_url"], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(getattr(request, "param", "redis_url"))
    return found


@pytest.fixture
def setup(project: Project, url: str) -> Iterator[Setup]:
    with SiteProcess(Site(pages=PAGES, latency=0.01)) as site:
        yield Setup(project, site, url)


def items_of(inbox: Inbox) -> dict[str, str]:
    """The path of each item by its id."""
    return {each.id: urlsplit(json.loads(each.payload)["url"]).path for each in inbox.deliveries}


@on_every_broker
async def test_items_go_to_a_topic_and_none_is_missing_after_a_kill(setup: Setup) -> None:
    async with setup.bus() as bus:
        inbox, group = Inbox(), f"{setup.name}-readers"
        subscription = await bus.subscribe(subscribe_to(f"items.{setup.name}", group=group), inbox)
        words = [*setup.words, "-o", setup.url]
        process = setup.project.start(*words, "-s", "concurrency=4", **setup.environment)
        await inbox.count(50)
        process.kill()
        process.communicate()
        done = await asyncio.to_thread(setup.project.run, *words, **setup.environment)
        assert done.returncode == 0, done.stderr
        await inbox.until(lambda inbox: len(items_of(inbox)) >= PAGES)
        assert set(items_of(inbox).values()) == PATHS
        assert {each.headers["crawl"] for each in inbox.deliveries} == {setup.name}
        repeats = len(inbox.deliveries) - PAGES
        assert 0 <= repeats <= 1000, "no more than a batch comes twice"
        await subscription.close()
        await bus.purge(group, forget=True)


async def test_a_broker_that_is_killed_in_between_costs_no_item(project: Project) -> None:
    with SiteProcess(Site(pages=PAGES, latency=0.01)) as site, RedisServer("redis", appendonly=True) as server:
        setup = Setup(project, site, server.url)
        async with setup.bus() as bus:
            inbox = Inbox()
            await bus.subscribe(subscribe_to(f"items.{setup.name}", group="readers"), inbox)
            words = [*setup.words, "-o", setup.url, "-s", "concurrency=4"]
            process = project.start(*words, **setup.environment, UTTU_BUS=setup.url)
            await inbox.count(50)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
            _, err = await asyncio.to_thread(process.communicate, timeout=60)
            assert process.returncode == 0, err
            await inbox.until(lambda inbox: len(items_of(inbox)) >= PAGES)
            assert set(items_of(inbox).values()) == PATHS


async def test_items_are_exported_to_a_topic(setup: Setup) -> None:
    done = await asyncio.to_thread(setup.project.run, *setup.words, "--limit", "20", **setup.environment)
    assert done.returncode == 0, done.stderr
    async with setup.bus() as bus:
        inbox, topic = Inbox(), f"{setup.name}.out"
        await bus.subscribe(subscribe_to(topic), inbox)
        words = ("export", setup.name, "-o", setup.topic(topic))
        done = await asyncio.to_thread(setup.project.run, *words, **setup.environment)
        assert done.returncode == 0, done.stderr
        await inbox.count(20)
        assert len(items_of(inbox)) == 20


def test_an_output_that_can_not_be_reached(setup: Setup) -> None:
    done = setup.project.run(*setup.words, "-o", "redis://u:secret@127.0.0.1:9/0", **setup.environment)
    assert done.returncode == 1
    assert f"Cannot write to items.{setup.name} on redis://u:***@127.0.0.1:9/0: " in done.stderr
    assert "secret" not in done.stderr
    assert setup.site.records() == []


@on_every_broker
async def test_a_crawl_takes_its_start_urls_from_a_topic(setup: Setup) -> None:
    setup.project.write(
        "spider.py",
        'from uttu import Spider\nspider = Spider("fed", private=True, robots=False, delay=0, per_host=0)\n'
        '@spider.page\ndef page(page):\n    yield {"url": page.url}\n',
    )
    url, topic, group = setup.site.url, f"feed.{setup.name}", setup.name
    words = [*setup.words, "-o", "out.jsonl", "--feed", setup.url, "--feed-idle", "2"]
    async with setup.bus() as bus:
        process = setup.project.start(*words)

        async def there() -> bool:
            return any(each.name == group and each.subscribers for each in await bus.groups())

        await eventually(there)
        await bus.publish(
            [
                message(topic, f"{url}p/1"),
                message(topic, json.dumps(f"{url}p/2")),
                message(topic, json.dumps([f"{url}p/3", {"url": f"{url}p/4", "handler": "page"}])),
                message(topic, json.dumps({"url": f"{url}p/5", "meta": {"n": 5}})),
                message(topic, f"{url}p/1"),
                message(topic, '{"url": 7}'),
                message(topic, json.dumps({"url": f"{url}p/6", "handler": "nobody"})),
            ]
        )
        await asyncio.to_thread(wait_for, setup.site, 5)
        await bus.publish([message(topic, f"{url}p/7")])
        _, err = await asyncio.to_thread(process.communicate, timeout=60)
        assert process.returncode == 0, err
        assert "finished" in err
        paths = Counter(urlsplit(row["url"]).path for row in setup.project.rows())
        assert paths == Counter(f"/p/{number}" for number in (1, 2, 3, 4, 5, 7))
        dead = {each.payload: each.headers[REASON_HEADER] for each in await bus.peek(group, dead=True)}
        assert len(dead) == 2
        assert "Expected `str`" in dead.pop(b'{"url": 7}')
        assert "a handler that the spider does not have: 'nobody'" in dead.popitem()[1]
        assert (await bus.groups(group))[0].lag == 0
        await bus.purge(group, forget=True)


async def test_a_fed_crawl_waits_until_it_is_stopped_and_what_comes_meanwhile_is_kept(setup: Setup) -> None:
    words = [*setup.words, "-o", "out.jsonl", "--feed", setup.topic(f"{setup.name}.urls"), "--workers", "2"]
    setup.project.write("spider.py", SPIDER_ALONE)
    async with setup.bus() as bus:
        process = setup.project.start(*words, **setup.environment)
        await asyncio.to_thread(wait_for, setup.site, 1)
        stopped = await asyncio.to_thread(setup.project.run, "stop", setup.name)
        assert stopped.returncode == 0, stopped.stderr
        _, err = await asyncio.to_thread(process.communicate, timeout=60)
        assert process.returncode == 1, err
        assert "stopped by the operator" in err
        await bus.publish([message(f"{setup.name}.urls", f"{setup.site.url}p/9")])
        process = setup.project.start(*words, **setup.environment)
        await asyncio.to_thread(wait_for, setup.site, 2)
        await asyncio.to_thread(setup.project.run, "stop", setup.name)
        await asyncio.to_thread(process.communicate, timeout=60)
        assert sorted(urlsplit(row["url"]).path for row in setup.project.rows()) == ["/p/0", "/p/9"]
        await bus.purge(setup.name, forget=True)


SPIDER_ALONE = """
import os
from uttu import Spider

spider = Spider("alone", start=os.environ["START"], private=True, robots=False, delay=0, per_host=0)

@spider.page
def page(page):
    yield {"url": page.url}
"""


async def test_a_fed_crawl_that_is_killed_misses_no_url(setup: Setup) -> None:
    setup.project.write("spider.py", SPIDER_ALONE)
    topic = f"feed.{setup.name}"
    address = setup.topic(topic) + "&takeover=1"
    words = [*setup.words, "-o", "out.jsonl", "--feed", address, "--feed-idle", "3", "-s", "concurrency=4"]
    async with setup.bus() as bus:
        await (await bus.subscribe(subscribe_to(topic, group=setup.name), Inbox())).close()
        await bus.publish([message(topic, f"{setup.site.url}p/{number}") for number in range(PAGES)])
        process = setup.project.start(*words, **setup.environment)

        async def begun() -> bool:
            return (await bus.groups(setup.name))[0].lag < PAGES

        await eventually(begun)
        process.kill()
        process.communicate()
        done = await asyncio.to_thread(setup.project.run, *words, **setup.environment)
        assert done.returncode == 0, done.stderr
        assert Counter(urlsplit(row["url"]).path for row in setup.project.rows()) == Counter(dict.fromkeys(PATHS, 1))
        await bus.purge(setup.name, forget=True)


def test_a_feed_that_can_not_be_reached(setup: Setup) -> None:
    done = setup.project.run(*setup.words, "--feed", "redis://u:secret@127.0.0.1:9/0", **setup.environment)
    assert done.returncode == 4
    assert "127.0.0.1:9" in done.stderr
    assert "secret" not in done.stderr
    wrong = setup.project.run(*setup.words, "--feed", "redis://127.0.0.1:9/0?topic=a..b", **setup.environment)
    assert wrong.returncode == 3


@on_every_broker
async def test_events_and_word_from_the_operator(setup: Setup) -> None:
    environment = {**setup.environment, "UTTU_BUS": setup.url}
    async with setup.bus() as bus:
        events, control = Inbox(), Inbox()
        await bus.subscribe(subscribe_to(f"crawl.{setup.name}.#"), events)
        await bus.subscribe(subscribe_to(f"control.{setup.name}"), control)
        process = setup.project.start(*setup.words, "-s", "stay=true", **environment)
        await events.until(lambda inbox: len(told(inbox, "page")) >= PAGES)
        states = [("pause", "paused"), ("resume", "running"), ("stop", "stopping")]
        for command, state in states:
            done = await asyncio.to_thread(setup.project.run, command, setup.name, **environment)
            assert done.returncode == 0, done.stderr
            await events.until(lambda inbox, state=state: told(inbox, "state")[-1]["state"] in (state, "stopped"))  # type: ignore[misc]
        await asyncio.to_thread(process.communicate, timeout=60)
        await events.until(lambda inbox: told(inbox, "state")[-1]["state"] == "stopped")
        await control.count(3)
        assert [json.loads(text)["action"] for text in control.texts] == ["pause", "resume", "stop"]
        await events.until(lambda inbox: sum(each["count"] for each in told(inbox, "item")) == PAGES)
        await events.until(lambda inbox: len(told(inbox, "worker")) == 2)
    pages = told(events, "page")
    assert {urlsplit(page["url"]).path for page in pages} == PATHS
    assert {page["status"] for page in pages} == {200}
    assert all(page["size"] > 0 and page["elapsed"] > 0 for page in pages)
    assert {page["depth"] for page in pages} >= {0, 1}
    joined, left = told(events, "worker")
    assert (joined["what"], left["what"], left["pages"]) == ("joined", "left", PAGES)
    seen = [each["state"] for each in told(events, "state")]
    assert seen[:3] == ["running", "paused", "running"]
    assert seen[-1] == "stopped"


def told(inbox: Inbox, kind: str) -> list[dict[str, Any]]:
    return [json.loads(each.payload) for each in inbox.deliveries if each.topic.endswith(f".{kind}")]


async def test_a_lane_that_is_held_is_told(setup: Setup) -> None:
    environment = {**setup.environment, "UTTU_BUS": setup.url, "START": setup.site.url + "odd/status/503"}
    async with setup.bus() as bus:
        events = Inbox()
        await bus.subscribe(subscribe_to(f"crawl.{setup.name}.lane"), events)
        process = setup.project.start(*setup.words, **environment)
        await events.count(1)
        process.kill()
        process.communicate()
    (lane, *_) = told(events, "lane")
    assert lane["lane"] == urlsplit(setup.site.url).netloc
    assert lane["seconds"] > 0
    assert "503" in lane["reason"]


async def test_workers_in_processes_of_their_own_tell_and_hear_as_well(setup: Setup) -> None:
    environment = {**setup.environment, "UTTU_BUS": setup.url}
    async with setup.bus() as bus:
        events = Inbox()
        await bus.subscribe(subscribe_to(f"crawl.{setup.name}.#"), events)
        done = await asyncio.to_thread(setup.project.run, *setup.words, "--workers", "2", **environment)
        assert done.returncode == 0, done.stderr
        await events.until(lambda inbox: "finished" in [each["state"] for each in told(inbox, "state")])
        await events.until(lambda inbox: [each["what"] for each in told(inbox, "worker")].count("left") == 2)
    assert {urlsplit(page["url"]).path for page in told(events, "page")} == PATHS
    assert Counter(each["what"] for each in told(events, "worker")) == Counter(joined=2, left=2)


def test_a_bus_that_can_not_be_reached_does_not_stop_a_crawl(setup: Setup) -> None:
    done = setup.project.run(
        *setup.words, "--limit", "10", **setup.environment, UTTU_BUS="redis://u:secret@127.0.0.1:9/0"
    )
    assert done.returncode == 0, done.stderr
    assert "The crawl runs without" in done.stderr
    assert "secret" not in done.stderr
