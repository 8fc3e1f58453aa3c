"""Who gets what: the part of the bus's contract about topics, groups, filters and order."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

import pytest

from weft.bus.base import Capability, Delivery, Message, Where
from weft.testing.bus_broker import Broker, Inbox, eventually, interest, message, needs


class BusDelivering:
    """Who gets what."""

    async def test_a_message_arrives_as_it_was_sent(self, broker: Broker) -> None:
        bus, inbox, topic = await broker.connect(), Inbox(), f"{broker.prefix}.news"
        await bus.subscribe(interest(topic, group=f"{broker.prefix}.g"), inbox)
        sent = Message(topic=topic, payload=bytes(range(256)), key="k ö", headers={"lang": "de", "ä": "ö €"}, id="id-1")
        await bus.publish([sent, message(topic)])
        await inbox.count(2)
        # One has a key and the other none, so their order is nobody's promise.
        empty, got = sorted(inbox.deliveries, key=lambda each: each.key)
        assert (got.topic, got.payload, got.key, got.headers, got.id) == (
            topic,
            sent.payload,
            "k ö",
            sent.headers,
            "id-1",
        )
        assert got.attempt == 1
        assert empty.payload == b""
        assert empty.id

    async def test_subscribers_of_a_group_share_and_each_group_gets_all(self, broker: Broker) -> None:
        topic, texts = f"{broker.prefix}.pages", [str(number) for number in range(300)]
        inboxes: dict[str, list[Inbox]] = defaultdict(list)
        for group in ("a", "a", "b"):
            inbox = Inbox()
            inboxes[group].append(inbox)
            bus = await broker.connect()
            await bus.subscribe(interest(topic, group=f"{broker.prefix}.{group}", batch=10, prefetch=10), inbox)
        publisher = await broker.connect()
        await publisher.publish([message(topic, text, key=text) for text in texts])
        for sharing in inboxes.values():
            await eventually(lambda boxes=sharing: sum(len(box.deliveries) for box in boxes) >= len(texts))  # type: ignore[misc]
            assert Counter(text for box in sharing for text in box.texts) == Counter(texts)

    async def test_every_subscriber_without_a_group_gets_what_is_published_while_it_listens(
        self, broker: Broker
    ) -> None:
        topic, first, second = f"{broker.prefix}.news", Inbox(), Inbox()
        publisher = await broker.connect()
        await publisher.publish([message(topic, "before")])
        for inbox in (first, second):
            await (await broker.connect()).subscribe(interest(topic), inbox)
        await publisher.publish([message(topic, "one"), message(topic, "two")])
        for inbox in (first, second):
            await inbox.count(2)
            assert inbox.texts == ["one", "two"]

    async def test_patterns_take_the_topics_they_match(self, broker: Broker) -> None:
        bus, prefix = await broker.connect(), broker.prefix
        patterns = {
            "one": f"{prefix}.*.page",
            "any": f"{prefix}.#",
            "none": f"{prefix}.books.#",
            "exact": f"{prefix}.end",
        }
        topics = ["books", "books.page", "books.page.old", "films.page", "end"]
        # Where topics are things of their own, they have to be there to be found.
        for topic in topics:
            await bus.publish([message(f"{prefix}.{topic}", "early")])
        inboxes = {name: Inbox() for name in patterns}
        for name, pattern in patterns.items():
            await bus.subscribe(interest(pattern, group=f"{prefix}.{name}"), inboxes[name])
        await bus.publish([message(f"{prefix}.{topic}", topic) for topic in topics])
        expected = {
            "one": {"books.page", "films.page"},
            "any": set(topics),
            "none": {"books", "books.page", "books.page.old"},
            "exact": {"end"},
        }
        for name, texts in expected.items():
            await inboxes[name].count(len(texts))
        assert {name: set(inbox.texts) for name, inbox in inboxes.items()} == expected

    async def test_one_group_may_take_several_topics(self, broker: Broker) -> None:
        bus, inbox, prefix = await broker.connect(), Inbox(), broker.prefix
        await bus.subscribe(interest(f"{prefix}.a", f"{prefix}.b", group=f"{prefix}.g"), inbox)
        await bus.publish([message(f"{prefix}.{name}", name) for name in "abc"])
        await inbox.count(2)
        assert set(inbox.texts) == {"a", "b"}

    @pytest.mark.parametrize(("any_of", "expected"), [(False, {"de"}), (True, {"de", "de-old", "en"})])
    async def test_filters_on_headers(self, broker: Broker, any_of: bool, expected: set[str]) -> None:
        bus, inbox, prefix = await broker.connect(), Inbox(), broker.prefix
        where = Where({"lang": "de", "kind": "page"}, any=any_of)
        await bus.subscribe(interest(f"{prefix}.*.x", group=f"{prefix}.g", where=where), inbox)
        alone = Inbox()
        await bus.subscribe(interest(f"{prefix}.*.x", where=where), alone)
        x = f"{prefix}.a.x"
        await bus.publish(
            [
                message(x, "en", headers={"lang": "en", "kind": "page"}),
                message(x, "de", headers={"lang": "de", "kind": "page", "more": "1"}),
                message(x, "de-old", headers={"lang": "de"}),
                message(x, "none"),
                message(f"{prefix}.a.y", "elsewhere", headers={"lang": "de", "kind": "page"}),
                message(x, "end", headers={"lang": "de", "kind": "page"}),
            ]
        )
        for box in (inbox, alone):
            await box.until(lambda box: "end" in box.texts)
            await box.count(len(expected) + 1)
            assert set(box.texts) - {"end"} == expected

    async def test_one_subscriber_gets_the_messages_of_one_key_in_order(self, broker: Broker) -> None:
        bus, inbox, topic = await broker.connect(), Inbox(), f"{broker.prefix}.t"
        await bus.subscribe(interest(topic, group=f"{broker.prefix}.g"), inbox)
        for first in range(0, 500, 100):
            await bus.publish([message(topic, str(number), key="k") for number in range(first, first + 100)])
        await inbox.count(500)
        assert inbox.texts == [str(number) for number in range(500)]

    async def test_keys_keep_their_order_among_several_subscribers(self, broker: Broker) -> None:
        topic = f"{broker.prefix}.t"
        buses = [await broker.connect() for _ in range(2)]
        needs(buses[0], Capability.ORDER_BY_KEY)
        order: dict[str, list[int]] = defaultdict(list)

        async def handler(deliveries: list[Delivery]) -> None:
            for delivery in deliveries:
                await asyncio.sleep(0)
                order[delivery.key].append(int(delivery.payload))

        for bus in buses:
            await bus.subscribe(interest(topic, group=f"{broker.prefix}.g", batch=7, prefetch=7), handler)
        await buses[0].publish([message(topic, str(number), key=f"k{number % 7}") for number in range(700)])
        await eventually(lambda: sum(map(len, order.values())) >= 700)
        assert all(numbers == sorted(numbers) for numbers in order.values())
