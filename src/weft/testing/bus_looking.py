"""What can be seen of groups, what is refused, and what some brokers can do beside."""

from __future__ import annotations

import pytest

from weft.bus.base import Capability, Connection, Interest, Where
from weft.errors import BusError, BusRefused, Unsupported
from weft.testing.bus_broker import Broker, Inbox, eventually, interest, message, needs


class BusLooking:
    """Lag, peek and purge."""

    async def test_a_group_says_how_it_stands(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        inbox = Inbox()
        subscription = await bus.subscribe(interest(topic, group=group, batch=1, prefetch=1), inbox)
        inbox.open.clear()
        await bus.publish([message(topic, str(number)) for number in range(10)])
        await inbox.until(lambda box: bool(box.begun))

        async def lag() -> bool:
            (state,) = await bus.groups(group)
            known = state.unacknowledged
            return state.name == group and state.lag == 10 - (known is None) and state.dead == 0

        await eventually(lag)
        inbox.open.set()
        await inbox.count(10)

        async def empty() -> bool:
            return (await bus.groups(group))[0].lag == 0

        await eventually(empty)
        await subscription.close()
        assert group in [each.name for each in await bus.groups()]

    async def test_peeking_takes_nothing(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        await (await bus.subscribe(interest(topic, group=group), Inbox())).close()
        await bus.publish([message(topic, str(number), key="k", headers={"n": "1"}) for number in range(5)])
        for _ in range(2):
            seen = await bus.peek(group, 3)
            assert [delivery.payload for delivery in seen] == [b"0", b"1", b"2"]
            assert (seen[0].topic, seen[0].key, seen[0].headers) == (topic, "k", {"n": "1"})
        assert len(await bus.peek(group, 100)) == 5
        inbox = Inbox()
        await bus.subscribe(interest(topic, group=group), inbox)
        await inbox.count(5)
        assert inbox.texts == ["0", "1", "2", "3", "4"]

    async def test_a_purged_group_starts_anew(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        await (await bus.subscribe(interest(topic, group=group), Inbox())).close()
        await bus.publish([message(topic, str(number)) for number in range(5)])
        assert await bus.purge(group) == 5
        assert (await bus.groups(group))[0].lag == 0
        await bus.publish([message(topic, "new")])
        inbox = Inbox()
        await bus.subscribe(interest(topic, group=group), inbox)
        await inbox.count(1)
        assert inbox.texts == ["new"]

    async def test_a_forgotten_group_is_gone(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        await (await bus.subscribe(interest(topic, group=group), Inbox())).close()
        await bus.publish([message(topic, "old")])
        assert await bus.purge(group, forget=True) == 1
        for look in (bus.groups(group), bus.peek(group), bus.purge(group)):
            with pytest.raises(BusRefused, match=group):
                await look
        assert group not in [each.name for each in await bus.groups()]

    async def test_a_group_that_never_was(self, broker: Broker) -> None:
        bus = await broker.connect()
        with pytest.raises(BusRefused, match="nobody"):
            await bus.groups(f"{broker.prefix}.nobody")


class BusRefusing:
    """What can't be done is said."""

    @pytest.mark.parametrize("topic", ["", "a..b", ".a", "a b", "a.*", "ä", "a" * 300, "a/b"])
    async def test_topics_that_are_none(self, broker: Broker, topic: str) -> None:
        bus = await broker.connect()
        with pytest.raises(ValueError, match="topic"):
            await bus.publish([message(topic)])

    @pytest.mark.parametrize(
        ("field", "capability"),
        [({"priority": 5}, Capability.PRIORITY), ({"delay": 0.5}, Capability.DELAY)],
        ids=["priority", "delay"],
    )
    async def test_what_the_broker_lacks_is_refused_by_name(
        self, broker: Broker, field: dict[str, float], capability: Capability
    ) -> None:
        bus = await broker.connect()
        if capability in bus.capabilities:
            await bus.publish([message(f"{broker.prefix}.t", "x", **field)])
        else:
            with pytest.raises(Unsupported, match=capability.name):
                await bus.publish([message(f"{broker.prefix}.t", "x", **field)])

    async def test_a_group_keeps_to_its_topics(self, broker: Broker) -> None:
        bus, group = await broker.connect(), f"{broker.prefix}.g"
        needs(bus, Capability.FIXED_GROUPS)
        await bus.subscribe(interest(f"{broker.prefix}.a", group=group), Inbox())
        with pytest.raises(BusRefused, match=group):
            await (await broker.connect()).subscribe(interest(f"{broker.prefix}.b", group=group), Inbox())
        where = Where({"a": "b"})
        with pytest.raises(BusRefused, match=group):
            await bus.subscribe(interest(f"{broker.prefix}.a", group=group, where=where), Inbox())

    async def test_a_closed_bus_does_nothing_more(self, broker: Broker) -> None:
        bus, states = await broker.connect(), []
        bus.listen(lambda state, why: states.append(state))
        await bus.close()
        await bus.close()
        assert states == [Connection.CLOSED]
        with pytest.raises(BusError, match="closed"):
            await bus.publish([message(f"{broker.prefix}.t")])
        with pytest.raises(BusError, match="closed"):
            await bus.subscribe(interest(f"{broker.prefix}.t"), Inbox())


class BusExtras:
    """What some brokers can do."""

    async def test_priority(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        needs(bus, Capability.PRIORITY)
        await (await bus.subscribe(interest(topic, group=group), Inbox())).close()
        await bus.publish([message(topic, str(number), priority=number) for number in (0, 9, 5)])
        inbox = Inbox()
        await bus.subscribe(interest(topic, group=group), inbox)
        await inbox.count(3)
        assert inbox.texts == ["9", "5", "0"]

    async def test_delay(self, broker: Broker) -> None:
        bus, topic, group, inbox = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g", Inbox()
        needs(bus, Capability.DELAY)
        await bus.subscribe(interest(topic, group=group), inbox)
        await bus.publish([message(topic, "later", delay=0.5), message(topic, "now")])
        await inbox.count(1)
        assert (await bus.groups(group))[0].delayed == 1
        await inbox.count(2)
        assert inbox.texts == ["now", "later"]

    async def test_replay(self, broker: Broker) -> None:
        bus, topic, inbox = await broker.connect(), f"{broker.prefix}.t", Inbox()
        early = Interest(topics=(topic,), group=f"{broker.prefix}.g", start="earliest")
        if Capability.REPLAY not in bus.capabilities:
            with pytest.raises(Unsupported, match="REPLAY"):
                await bus.subscribe(early, inbox)
            return
        await bus.publish([message(topic, "old", key="k"), message(topic, "older", key="k")])
        await bus.subscribe(early, inbox)
        await inbox.count(2)
        assert inbox.texts == ["old", "older"]
