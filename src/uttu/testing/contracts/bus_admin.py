"""The contract of :class:`uttu.bus.base.BusAdmin` as tests: describing a broker, republishing dead letters."""

from __future__ import annotations

from collections import Counter

import pytest

from uttu.bus.base import REASON_HEADER, BusAdmin
from uttu.errors import BusRefused
from uttu.testing.contracts.broker import Broker, Inbox, eventually, message, subscribe_to


class BusAdminContract:
    """Skipped for a bus without :class:`BusAdmin`, which is optional."""

    async def test_republished_dead_letters_go_to_their_group_alone(self, broker: Broker) -> None:
        bus, topic = await broker.connect(), f"{broker.prefix}.t"
        group, other = f"{broker.prefix}.g", f"{broker.prefix}.other"
        if not isinstance(bus, BusAdmin):
            pytest.skip("this bus has no BusAdmin")
        is_broken = True
        inbox, others, broadcast = Inbox(lambda delivery: is_broken), Inbox(), Inbox()
        await bus.subscribe(subscribe_to(topic, group=group, attempts=1), inbox)
        await bus.subscribe(subscribe_to(topic, group=other), others)
        await bus.subscribe(subscribe_to(topic), broadcast)
        await bus.publish([message(topic, text, key=text, headers={"h": text}) for text in ("one", "two", "three")])

        async def buried() -> bool:
            return (await bus.groups(group))[0].dead == 3

        await eventually(buried)
        await others.count(3)
        await broadcast.count(3)
        is_broken = False
        assert await bus.republish(group, 2) == 2
        await inbox.count(2)
        assert await bus.republish(group, 10) == 1
        assert await bus.republish(group, 10) == 0
        await inbox.count(3)
        assert Counter(each.payload for each in inbox.deliveries) == Counter([b"one", b"two", b"three"])
        assert all(each.headers.get(REASON_HEADER) is None for each in inbox.deliveries)
        assert all((each.topic, each.headers["h"]) == (topic, each.key) for each in inbox.deliveries)
        assert await bus.peek(group, dead=True) == []
        await bus.publish([message(topic, "last")])
        await others.count(4)
        await broadcast.count(4)
        assert [each.payload for each in (others.deliveries[-1], broadcast.deliveries[-1])] == [b"last", b"last"]
        assert len(others.deliveries) == len(broadcast.deliveries) == 4

    async def test_a_bus_describes_itself(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        if not isinstance(bus, BusAdmin):
            pytest.skip("this bus has no BusAdmin")
        subscription = await bus.subscribe(subscribe_to(topic, group=group), Inbox())
        await subscription.close()
        await bus.publish([message(topic, "one")])
        found = await bus.describe()
        assert found.kind
        for table in found.tables:
            assert all(len(row) == len(table.columns) for row in table.rows)
        if found.topics:
            assert topic in {each.name for each in found.topics}
        with pytest.raises(BusRefused):
            await bus.republish(f"{broker.prefix}.nobody", 1)
