"""What happens to messages that are not handled: the part of the bus's contract about acknowledgement."""

from __future__ import annotations

import asyncio
from collections import Counter

from weft.bus.base import Capability, Delivery, Rejected
from weft.bus.subscription import REASON
from weft.testing.bus_broker import Broker, Inbox, eventually, interest, message, needs


class BusKeeping:
    """What happens to messages that are not handled."""

    async def test_messages_wait_for_a_group_that_is_away(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        subscription = await bus.subscribe(interest(topic, group=group), Inbox())
        await subscription.close()
        await bus.publish([message(topic, "kept")])
        inbox = Inbox()
        await (await broker.connect()).subscribe(interest(topic, group=group), inbox)
        await inbox.count(1)
        assert inbox.texts == ["kept"]

    async def test_a_failed_message_comes_again_and_the_others_are_not_held_up(self, broker: Broker) -> None:
        bus, topic = await broker.connect(), f"{broker.prefix}.t"
        inbox = Inbox(lambda delivery: delivery.payload == b"bad" and delivery.attempt < 3)
        await bus.subscribe(interest(topic, group=f"{broker.prefix}.g"), inbox)
        await bus.publish([message(topic, text, key=text) for text in ("one", "bad", "two")])
        await inbox.count(3)
        assert Counter(inbox.texts) == Counter(["one", "bad", "two"])
        assert {d.payload: d.attempt for d in inbox.deliveries}[b"bad"] == 3

    async def test_what_fails_again_and_again_goes_to_the_dead_letters(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        inbox = Inbox(lambda delivery: delivery.payload == b"bad")
        subscription = await bus.subscribe(interest(topic, group=group, attempts=3), inbox)
        await bus.publish([message(topic, text, key=text, headers={"h": text}) for text in ("one", "bad", "two")])

        async def buried() -> bool:
            return (await bus.groups(group))[0].dead == 1

        await eventually(buried)
        await inbox.count(2)
        assert max(delivery.attempt for delivery in inbox.begun) == 3
        (dead,) = await bus.peek(group, dead=True)
        assert (dead.payload, dead.topic, dead.headers["h"]) == (b"bad", topic, "bad")
        assert dead.headers[REASON] == "RuntimeError: bad is bad"
        assert subscription.last_error == "RuntimeError: bad is bad"
        assert await bus.purge(group, dead=True) == 1
        assert await bus.peek(group, dead=True) == []

    async def test_what_a_handler_rejects_goes_to_the_dead_letters_at_once(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        begun: list[str] = []

        async def handler(deliveries: list[Delivery]) -> None:
            begun.extend(delivery.payload.decode() for delivery in deliveries)
            if bad := [delivery for delivery in deliveries if delivery.payload == b"bad"]:
                raise Rejected({delivery.position: "it is bad" for delivery in bad})

        subscription = await bus.subscribe(interest(topic, group=group), handler)
        await bus.publish([message(topic, text, key=text) for text in ("one", "bad", "two")])

        async def settled() -> bool:
            (state,) = await bus.groups(group)
            return state.dead == 1 and state.lag == 0

        await eventually(settled)
        assert Counter(begun) == Counter(["one", "bad", "two"])
        assert (subscription.handled, subscription.failed, subscription.last_error) == (2, 1, "it is bad")
        (dead,) = await bus.peek(group, dead=True)
        assert (dead.payload, dead.headers[REASON]) == (b"bad", "it is bad")

    async def test_a_subscriber_without_a_group_goes_on_after_what_failed(self, broker: Broker) -> None:
        bus, topic = await broker.connect(), f"{broker.prefix}.t"
        inbox = Inbox(lambda delivery: delivery.payload != b"good")
        await bus.subscribe(interest(topic, prefetch=2, batch=1), inbox)
        await bus.publish([message(topic, text, key="k") for text in (*"abcde", "good")])
        await inbox.count(1)
        assert [delivery.payload.decode() for delivery in inbox.begun] == [*"abcde", "good"]

    async def test_what_is_not_acknowledged_goes_to_another(self, broker: Broker) -> None:
        topic, group = f"{broker.prefix}.t", f"{broker.prefix}.g"
        first, other = await broker.connect(), await broker.connect()
        stuck, inbox = Inbox(), Inbox()
        stuck.open.clear()
        subscription = await first.subscribe(interest(topic, group=group, batch=1, prefetch=5), stuck)
        await other.publish([message(topic, str(number)) for number in range(5)])
        await stuck.until(lambda box: bool(box.begun))
        await other.subscribe(interest(topic, group=group), inbox)
        closing = asyncio.create_task(subscription.close())
        stuck.open.set()
        await closing
        await inbox.count(5 - len(stuck.deliveries))
        assert Counter(stuck.texts + inbox.texts) == Counter(str(number) for number in range(5))
        assert len(stuck.deliveries) == 1

    async def test_no_more_than_the_prefetch_is_held(self, broker: Broker) -> None:
        topic, group = f"{broker.prefix}.t", f"{broker.prefix}.g"
        bus, other = await broker.connect(), await broker.connect()
        stuck, inbox = Inbox(), Inbox()
        stuck.open.clear()
        await bus.subscribe(interest(topic, group=group, prefetch=3, batch=2), stuck)
        needs(bus, Capability.REDELIVERY)
        await bus.publish([message(topic, str(number)) for number in range(20)])
        await stuck.until(lambda box: bool(box.begun))
        await other.subscribe(interest(topic, group=group), inbox)
        await inbox.count(17)
        stuck.open.set()
        await eventually(lambda: len(stuck.deliveries) + len(inbox.deliveries) >= 20)
        assert max(stuck.batches) <= 2
        assert len(stuck.deliveries) <= 3

    async def test_nothing_is_handed_out_while_paused(self, broker: Broker) -> None:
        bus, inbox, topic = await broker.connect(), Inbox(), f"{broker.prefix}.t"
        subscription = await bus.subscribe(interest(topic, group=f"{broker.prefix}.g"), inbox)
        await bus.publish([message(topic, "before")])
        await inbox.count(1)
        subscription.pause()
        await bus.publish([message(topic, "while")])
        await asyncio.sleep(0.3)
        assert inbox.texts == ["before"]
        subscription.resume()
        await inbox.count(2)
        assert inbox.texts == ["before", "while"]

    async def test_a_subscription_can_be_closed_from_its_handler(self, broker: Broker) -> None:
        bus, topic, seen = await broker.connect(), f"{broker.prefix}.t", []

        async def handler(deliveries: list[Delivery]) -> None:
            seen.extend(deliveries)
            await subscription.close()

        subscription = await bus.subscribe(interest(topic, group=f"{broker.prefix}.g", batch=1), handler)
        await bus.publish([message(topic, "one"), message(topic, "two")])
        async with asyncio.timeout(20):
            await subscription.wait()
        assert len(seen) == 1
