"""A publisher that waits for its readers."""

from __future__ import annotations

import asyncio

import pytest

from uttu.bus.base import Group
from uttu.bus.memory import MemoryBus
from uttu.operations.bus import wait_for_capacity
from uttu.testing.contracts.broker import Inbox, message, subscribe_to


async def test_there_is_room_while_no_group_that_takes_the_topic_is_behind() -> None:
    bus = MemoryBus()
    await (await bus.subscribe(subscribe_to("a.#", group="g"), Inbox())).close()
    await (await bus.subscribe(subscribe_to("b", group="other"), Inbox())).close()
    await bus.publish([message("a.x"), message("a.y"), *[message("b")] * 5])
    async with asyncio.timeout(5):
        await wait_for_capacity(bus, ["a.x"], 2)
        await wait_for_capacity(bus, ["c"], 0)
    await bus.close()


async def test_it_waits_for_the_slowest_and_goes_on_when_it_has_caught_up() -> None:
    bus, inbox, quick = MemoryBus(), Inbox(), Inbox()
    told: list[tuple[str, int]] = []
    inbox.open.clear()
    await bus.subscribe(subscribe_to("a", group="slow", batch=1, prefetch=1), inbox)
    await bus.subscribe(subscribe_to("a", group="quick"), quick)
    await bus.publish([message("a", str(number)) for number in range(5)])
    await quick.count(5)

    def waiting(group: Group) -> None:
        told.append((group.name, group.lag))
        inbox.open.set()

    async with asyncio.timeout(5):
        await wait_for_capacity(bus, {"a", "b"}, 3, waiting)
    assert told[0] == ("slow", 5)
    assert (await bus.groups("slow"))[0].lag <= 3
    await bus.close()


async def test_a_group_whose_topics_are_not_told_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = MemoryBus()
    lags = iter([9, 9, 0])

    async def groups(*names: str) -> list[Group]:
        return [Group(name="g", ready=next(lags))]

    monkeypatch.setattr(bus, "groups", groups)
    async with asyncio.timeout(5):
        await wait_for_capacity(bus, ["a"], 5)
    assert next(lags, None) is None
