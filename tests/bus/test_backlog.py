"""A publisher that waits for its readers."""

from __future__ import annotations

import asyncio

import pytest

from weft.bus.backlog import room
from weft.bus.base import Group
from weft.bus.memory import MemoryBus
from weft.testing.bus_broker import Inbox, interest, message


async def test_there_is_room_while_no_group_that_takes_the_topic_is_behind() -> None:
    bus = MemoryBus()
    await (await bus.subscribe(interest("a.#", group="g"), Inbox())).close()
    await (await bus.subscribe(interest("b", group="other"), Inbox())).close()
    await bus.publish([message("a.x"), message("a.y"), *[message("b")] * 5])
    async with asyncio.timeout(5):
        await room(bus, ["a.x"], 2)
        await room(bus, ["c"], 0)
    await bus.close()


async def test_it_waits_for_the_slowest_and_goes_on_when_it_has_caught_up() -> None:
    bus, inbox, quick = MemoryBus(), Inbox(), Inbox()
    told: list[tuple[str, int]] = []
    inbox.open.clear()
    await bus.subscribe(interest("a", group="slow", batch=1, prefetch=1), inbox)
    await bus.subscribe(interest("a", group="quick"), quick)
    await bus.publish([message("a", str(number)) for number in range(5)])
    await quick.count(5)

    def waiting(group: Group) -> None:
        told.append((group.name, group.lag))
        inbox.open.set()

    async with asyncio.timeout(5):
        await room(bus, {"a", "b"}, 3, waiting)
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
        await room(bus, ["a"], 5)
    assert next(lags, None) is None
