"""Subscribers that come, go, stand still and are thought dead; and nodes of a cluster that do."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

from tests.bus.redis_buses import buses_at
from tests.bus.subscribers import child, handled, is_ready
from tests.harness.servers import RedisCluster, RedisServer

from uttu.bus.base import Delivery
from uttu.testing.contracts.broker import Inbox, eventually, message, subscribe_to


async def test_joining_and_leaving_subscribers_lose_and_repeat_nothing(redis_url: str) -> None:
    texts = [str(number) for number in range(5_000)]
    seen: list[Delivery] = []

    async def handler(deliveries: list[Delivery]) -> None:
        await asyncio.sleep(0)
        seen.extend(deliveries)

    async with buses_at(redis_url) as buses:
        bus = await buses.connect()
        await (await bus.subscribe(subscribe_to("a", group="g"), handler)).close()

        async def come_and_go(number: int) -> None:
            other = await buses.connect()
            while len(seen) < len(texts):
                subscription = await other.subscribe(subscribe_to("a", group="g", batch=10, prefetch=30), handler)
                await asyncio.sleep(0.01 * number)
                subscription.pause()
                subscription.resume()
                await subscription.close()

        working = [asyncio.create_task(come_and_go(number)) for number in range(1, 5)]
        for first in range(0, len(texts), 50):
            await bus.publish([message("a", text) for text in texts[first : first + 50]])
        await asyncio.wait_for(asyncio.gather(*working), 60)
        assert Counter(delivery.payload.decode() for delivery in seen) == Counter(texts)
        assert {delivery.attempt for delivery in seen} == {1}
        (state,) = await bus.groups("g")
        assert (state.lag, state.subscribers) == (0, 0)
        await buses.forget()


async def test_subscriber_drops_messages_that_were_taken_over(redis_url: str, tmp_path: Path) -> None:
    file, count, batch = tmp_path / "child", 200, 5
    async with buses_at(redis_url, "&takeover=1") as buses:
        bus, inbox = await buses.connect(), Inbox()
        with child(buses.url, "g", "a", file, batch=batch, prefetch=100, pause=0.05) as process:
            await eventually(lambda: is_ready(file))
            await bus.publish([message("a", id=str(number)) for number in range(count)])
            await eventually(lambda: len(handled(file)) >= 10)
            os.kill(process.pid, signal.SIGSTOP)
            await bus.subscribe(subscribe_to("a", group="g"), inbox)
            everything = {str(number) for number in range(count)}
            await inbox.until(
                lambda box: {each.id for each in box.deliveries} | {i for i, _ in handled(file)} == everything
            )
            os.kill(process.pid, signal.SIGCONT)

            async def both_live() -> bool:
                return (await bus.groups("g"))[0].subscribers == 2

            await eventually(both_live)
            await bus.publish([message("a", id=f"new-{number}") for number in range(1_000)])
            await eventually(lambda: any(each.startswith("new") for each, _ in handled(file)))
            # What it had in its buffer was others' by then; only what its handler had came twice.
            twice = {each.id for each in inbox.deliveries} & {each for each, _ in handled(file)}
            assert len(twice) <= 2 * batch
        await buses.forget()


async def test_outage_does_not_expire_subscribers() -> None:
    with RedisServer(appendonly=True) as server:
        async with buses_at(server.url, "&takeover=1") as buses:
            first, other = await buses.connect(), await buses.connect()
            stuck, inbox = Inbox(), Inbox()
            stuck.open.clear()
            await first.subscribe(subscribe_to("a", group="g"), stuck)
            await other.publish([message("a", "held")])
            await stuck.until(lambda box: bool(box.begun))
            await other.subscribe(subscribe_to("a", group="g"), inbox)
            server.kill()
            await asyncio.sleep(2.5)  # longer than it takes to be thought dead
            server.restart()

            async def both_live() -> bool:
                (state,) = await other.groups("g")
                return (state.subscribers, state.unacknowledged) == (2, 1)

            for _ in range(10):
                await eventually(both_live)
                await asyncio.sleep(0.1)
            stuck.open.set()
            await stuck.count(1)
            assert not inbox.begun


async def test_cluster_node_dies_and_a_slot_moves() -> None:
    with RedisCluster(appendonly=True, node_timeout_ms=1_000) as cluster:
        async with buses_at(cluster.url) as buses:
            bus, inbox, alone = await buses.connect(), Inbox(), Inbox()
            await bus.subscribe(subscribe_to("a", group="g"), inbox)
            await bus.subscribe(subscribe_to("a"), alone)
            name = buses.url.partition("bus=")[2]
            slot = int(str(cluster.nodes[0].ask("CLUSTER", "KEYSLOT", f"{{{name}}}")))
            source = next(node for node in cluster.nodes if node.ask("CLUSTER", "COUNTKEYSINSLOT", slot))
            target = next(node for node in cluster.nodes if node is not source)
            source.kill()
            publishing = asyncio.create_task(bus.publish([message("a", "while away")]))
            await asyncio.to_thread(source.restart)
            await asyncio.to_thread(cluster.wait)
            await asyncio.wait_for(publishing, 30)
            await inbox.until(lambda box: "while away" in box.texts)

            there, here = str(target.ask("CLUSTER", "MYID")), str(source.ask("CLUSTER", "MYID"))
            target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", here)
            source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", there)
            keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000)
            assert isinstance(keys, list)
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *map(str, keys))
            for node in (target, source):
                node.ask("CLUSTER", "SETSLOT", slot, "NODE", there)
            await bus.publish([message("a", "moved")])
            await inbox.until(lambda box: "moved" in box.texts)
            await alone.until(lambda box: "moved" in box.texts)
