"""The contract of :mod:`uttu.bus.base` as tests.

The test file of a backend inherits :class:`BusContract` and supplies the fixture ``broker``, described in
:mod:`uttu.testing.contracts.broker`. A test is skipped only if the bus does not declare the capability it needs.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

import pytest

from uttu.bus.base import REASON_HEADER, Capability, Delivery, HeaderFilter, Message, Rejected, SubscribeOptions
from uttu.clients import ConnectionState
from uttu.errors import BusError, BusRefused, Unsupported
from uttu.testing.contracts.broker import Broker, Inbox, eventually, message, needs, subscribe_to
from uttu.testing.contracts.bus_admin import BusAdminContract


class BusDeliveryContract:
    """Which subscribers get which messages."""

    async def test_a_message_arrives_as_it_was_sent(self, broker: Broker) -> None:
        bus, inbox, topic = await broker.connect(), Inbox(), f"{broker.prefix}.news"
        await bus.subscribe(subscribe_to(topic, group=f"{broker.prefix}.g"), inbox)
        sent = Message(topic=topic, payload=bytes(range(256)), key="k ö", headers={"lang": "de", "ä": "ö €"}, id="id-1")
        await bus.publish([sent, message(topic)])
        await inbox.count(2)
        # Messages with different keys have no guaranteed order, so sort them.
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
            await bus.subscribe(subscribe_to(topic, group=f"{broker.prefix}.{group}", batch=10, prefetch=10), inbox)
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
            await (await broker.connect()).subscribe(subscribe_to(topic), inbox)
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
        # On Kafka a pattern finds only topics that exist, so create them first.
        for topic in topics:
            await bus.publish([message(f"{prefix}.{topic}", "early")])
        inboxes = {name: Inbox() for name in patterns}
        for name, pattern in patterns.items():
            await bus.subscribe(subscribe_to(pattern, group=f"{prefix}.{name}"), inboxes[name])
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
        await bus.subscribe(subscribe_to(f"{prefix}.a", f"{prefix}.b", group=f"{prefix}.g"), inbox)
        await bus.publish([message(f"{prefix}.{name}", name) for name in "abc"])
        await inbox.count(2)
        assert set(inbox.texts) == {"a", "b"}

    @pytest.mark.parametrize(("any_of", "expected"), [(False, {"de"}), (True, {"de", "de-old", "en"})])
    async def test_filters_on_headers(self, broker: Broker, any_of: bool, expected: set[str]) -> None:
        bus, inbox, prefix = await broker.connect(), Inbox(), broker.prefix
        where = HeaderFilter({"lang": "de", "kind": "page"}, any=any_of)
        await bus.subscribe(subscribe_to(f"{prefix}.*.x", group=f"{prefix}.g", where=where), inbox)
        alone = Inbox()
        await bus.subscribe(subscribe_to(f"{prefix}.*.x", where=where), alone)
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
        await bus.subscribe(subscribe_to(topic, group=f"{broker.prefix}.g"), inbox)
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
            await bus.subscribe(subscribe_to(topic, group=f"{broker.prefix}.g", batch=7, prefetch=7), handler)
        await buses[0].publish([message(topic, str(number), key=f"k{number % 7}") for number in range(700)])
        await eventually(lambda: sum(map(len, order.values())) >= 700)
        assert all(numbers == sorted(numbers) for numbers in order.values())


class BusAcknowledgementContract:
    """Retries, dead letters, and messages of a subscriber that closes or dies."""

    async def test_messages_wait_for_a_group_that_is_away(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        subscription = await bus.subscribe(subscribe_to(topic, group=group), Inbox())
        await subscription.close()
        await bus.publish([message(topic, "kept")])
        inbox = Inbox()
        await (await broker.connect()).subscribe(subscribe_to(topic, group=group), inbox)
        await inbox.count(1)
        assert inbox.texts == ["kept"]

    async def test_a_failed_message_comes_again_and_the_others_are_not_held_up(self, broker: Broker) -> None:
        bus, topic = await broker.connect(), f"{broker.prefix}.t"
        inbox = Inbox(lambda delivery: delivery.payload == b"bad" and delivery.attempt < 3)
        await bus.subscribe(subscribe_to(topic, group=f"{broker.prefix}.g"), inbox)
        await bus.publish([message(topic, text, key=text) for text in ("one", "bad", "two")])
        await inbox.count(3)
        assert Counter(inbox.texts) == Counter(["one", "bad", "two"])
        assert {d.payload: d.attempt for d in inbox.deliveries}[b"bad"] == 3

    async def test_what_fails_again_and_again_goes_to_the_dead_letters(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        inbox = Inbox(lambda delivery: delivery.payload == b"bad")
        subscription = await bus.subscribe(subscribe_to(topic, group=group, attempts=3), inbox)
        await bus.publish([message(topic, text, key=text, headers={"h": text}) for text in ("one", "bad", "two")])

        async def buried() -> bool:
            return (await bus.groups(group))[0].dead == 1

        await eventually(buried)
        await inbox.count(2)
        assert max(delivery.attempt for delivery in inbox.begun) == 3
        (dead,) = await bus.peek(group, dead=True)
        assert (dead.payload, dead.topic, dead.headers["h"]) == (b"bad", topic, "bad")
        assert dead.headers[REASON_HEADER] == "RuntimeError: bad is bad"
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

        subscription = await bus.subscribe(subscribe_to(topic, group=group), handler)
        await bus.publish([message(topic, text, key=text) for text in ("one", "bad", "two")])

        async def settled() -> bool:
            (state,) = await bus.groups(group)
            return state.dead == 1 and state.lag == 0

        await eventually(settled)
        assert Counter(begun) == Counter(["one", "bad", "two"])
        assert (subscription.handled, subscription.failed, subscription.last_error) == (2, 1, "it is bad")
        (dead,) = await bus.peek(group, dead=True)
        assert (dead.payload, dead.headers[REASON_HEADER]) == (b"bad", "it is bad")

    async def test_a_subscriber_without_a_group_goes_on_after_what_failed(self, broker: Broker) -> None:
        bus, topic = await broker.connect(), f"{broker.prefix}.t"
        inbox = Inbox(lambda delivery: delivery.payload != b"good")
        await bus.subscribe(subscribe_to(topic, prefetch=2, batch=1), inbox)
        await bus.publish([message(topic, text, key="k") for text in (*"abcde", "good")])
        await inbox.count(1)
        assert [delivery.payload.decode() for delivery in inbox.begun] == [*"abcde", "good"]

    async def test_what_is_not_acknowledged_goes_to_another(self, broker: Broker) -> None:
        topic, group = f"{broker.prefix}.t", f"{broker.prefix}.g"
        first, other = await broker.connect(), await broker.connect()
        stuck, inbox = Inbox(), Inbox()
        stuck.open.clear()
        subscription = await first.subscribe(subscribe_to(topic, group=group, batch=1, prefetch=5), stuck)
        await other.publish([message(topic, str(number)) for number in range(5)])
        await stuck.until(lambda box: bool(box.begun))
        await other.subscribe(subscribe_to(topic, group=group), inbox)
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
        await bus.subscribe(subscribe_to(topic, group=group, prefetch=3, batch=2), stuck)
        needs(bus, Capability.REDELIVERY)
        await bus.publish([message(topic, str(number)) for number in range(20)])
        await stuck.until(lambda box: bool(box.begun))
        await other.subscribe(subscribe_to(topic, group=group), inbox)
        await inbox.count(17)
        stuck.open.set()
        await eventually(lambda: len(stuck.deliveries) + len(inbox.deliveries) >= 20)
        assert max(stuck.batches) <= 2
        assert len(stuck.deliveries) <= 3

    async def test_nothing_is_handed_out_while_paused(self, broker: Broker) -> None:
        bus, inbox, topic = await broker.connect(), Inbox(), f"{broker.prefix}.t"
        subscription = await bus.subscribe(subscribe_to(topic, group=f"{broker.prefix}.g"), inbox)
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

        subscription = await bus.subscribe(subscribe_to(topic, group=f"{broker.prefix}.g", batch=1), handler)
        await bus.publish([message(topic, "one"), message(topic, "two")])
        async with asyncio.timeout(20):
            await subscription.wait()
        assert len(seen) == 1


class BusGroupsContract:
    """Lag, peek and purge."""

    async def test_a_group_says_how_it_stands(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        inbox = Inbox()
        subscription = await bus.subscribe(subscribe_to(topic, group=group, batch=1, prefetch=1), inbox)
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
        await (await bus.subscribe(subscribe_to(topic, group=group), Inbox())).close()
        await bus.publish([message(topic, str(number), key="k", headers={"n": "1"}) for number in range(5)])
        for _ in range(2):
            seen = await bus.peek(group, 3)
            assert [delivery.payload for delivery in seen] == [b"0", b"1", b"2"]
            assert (seen[0].topic, seen[0].key, seen[0].headers) == (topic, "k", {"n": "1"})
        assert len(await bus.peek(group, 100)) == 5
        inbox = Inbox()
        await bus.subscribe(subscribe_to(topic, group=group), inbox)
        await inbox.count(5)
        assert inbox.texts == ["0", "1", "2", "3", "4"]

    async def test_a_purged_group_starts_anew(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        await (await bus.subscribe(subscribe_to(topic, group=group), Inbox())).close()
        await bus.publish([message(topic, str(number)) for number in range(5)])
        assert await bus.purge(group) == 5
        assert (await bus.groups(group))[0].lag == 0
        await bus.publish([message(topic, "new")])
        inbox = Inbox()
        await bus.subscribe(subscribe_to(topic, group=group), inbox)
        await inbox.count(1)
        assert inbox.texts == ["new"]

    async def test_a_forgotten_group_is_gone(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        await (await bus.subscribe(subscribe_to(topic, group=group), Inbox())).close()
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


class BusRefusalContract:
    """Invalid arguments and missing capabilities raise errors."""

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
        await bus.subscribe(subscribe_to(f"{broker.prefix}.a", group=group), Inbox())
        with pytest.raises(BusRefused, match=group):
            await (await broker.connect()).subscribe(subscribe_to(f"{broker.prefix}.b", group=group), Inbox())
        where = HeaderFilter({"a": "b"})
        with pytest.raises(BusRefused, match=group):
            await bus.subscribe(subscribe_to(f"{broker.prefix}.a", group=group, where=where), Inbox())

    async def test_a_closed_bus_does_nothing_more(self, broker: Broker) -> None:
        bus, states = await broker.connect(), []
        bus.listen(lambda state, why: states.append(state))
        await bus.close()
        await bus.close()
        assert states == [ConnectionState.CLOSED]
        with pytest.raises(BusError, match="closed"):
            await bus.publish([message(f"{broker.prefix}.t")])
        with pytest.raises(BusError, match="closed"):
            await bus.subscribe(subscribe_to(f"{broker.prefix}.t"), Inbox())


class BusCapabilityContract:
    """Optional capabilities."""

    async def test_priority(self, broker: Broker) -> None:
        bus, topic, group = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g"
        needs(bus, Capability.PRIORITY)
        await (await bus.subscribe(subscribe_to(topic, group=group), Inbox())).close()
        await bus.publish([message(topic, str(number), priority=number) for number in (0, 9, 5)])
        inbox = Inbox()
        await bus.subscribe(subscribe_to(topic, group=group), inbox)
        await inbox.count(3)
        assert inbox.texts == ["9", "5", "0"]

    async def test_delay(self, broker: Broker) -> None:
        bus, topic, group, inbox = await broker.connect(), f"{broker.prefix}.t", f"{broker.prefix}.g", Inbox()
        needs(bus, Capability.DELAY)
        await bus.subscribe(subscribe_to(topic, group=group), inbox)
        await bus.publish([message(topic, "later", delay=0.5), message(topic, "now")])
        await inbox.count(1)
        assert (await bus.groups(group))[0].delayed == 1
        await inbox.count(2)
        assert inbox.texts == ["now", "later"]

    async def test_replay(self, broker: Broker) -> None:
        bus, topic, inbox = await broker.connect(), f"{broker.prefix}.t", Inbox()
        early = SubscribeOptions(topics=(topic,), group=f"{broker.prefix}.g", start="earliest")
        if Capability.REPLAY not in bus.capabilities:
            with pytest.raises(Unsupported, match="REPLAY"):
                await bus.subscribe(early, inbox)
            return
        await bus.publish([message(topic, "old", key="k"), message(topic, "older", key="k")])
        await bus.subscribe(early, inbox)
        await inbox.count(2)
        assert inbox.texts == ["old", "older"]


class BusContract(
    BusDeliveryContract,
    BusAcknowledgementContract,
    BusGroupsContract,
    BusAdminContract,
    BusRefusalContract,
    BusCapabilityContract,
):
    """All tests of the contract."""
