"""How groups stand, what waits in them, and how it is thrown away.

A group's lag is what lies between the positions it has committed and the ends of the partitions. What its subscribers
hold at the moment is not known to Kafka, so it counts among what is ready.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

import msgspec
from confluent_kafka import (
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from weft.bus.base import Delivery, Group
from weft.bus.kafka.address import Address
from weft.bus.kafka.catalog import Catalog
from weft.bus.kafka.errors import IN_USE, Key, asked, code_of, driver
from weft.bus.kafka.positions import Positions
from weft.bus.kafka.span import Place, Span, first_of, size
from weft.bus.kafka.wire import dead_topic, is_dead_topic
from weft.errors import BusRefused

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_MEMBERS_SECONDS: Final = 1.0
_LEAVING_SECONDS: Final = 2.0
_LOOK_AGAIN: Final = 0.05


class Standing(msgspec.Struct, frozen=True):
    """A group as Kafka has it."""

    positions: dict[Place, int]
    """What it has committed."""
    subscribers: int | None


class Overview:
    def __init__(self, address: Address, admin: AdminClient, catalog: Catalog) -> None:
        self._address = address
        self._admin = admin
        self._catalog = catalog
        self._positions = Positions(address)

    async def close(self) -> None:
        await self._positions.close()

    async def positions(self, group: str) -> dict[Place, int]:
        """What a group has committed; nothing, if there is no such group."""
        there = await self._catalog.partitions()
        places = [(topic, number) for topic, count in there.items() for number in range(count)]
        with driver(self._address.brokers, f"can't see the positions of the group {group}"):
            return await self._positions.committed(group, places)

    async def move(self, group: str, positions: Mapping[Place, int]) -> bool:
        """Set a group's positions; whether it could be done: not if it has subscribers."""
        with driver(self._address.brokers, f"can't set the positions of the group {group}"):
            try:
                await self._positions.commit(group, positions)
            except KafkaException as error:
                if code_of(error) in IN_USE:
                    return False
                raise
        return True

    async def spans(self, places: Iterable[Place]) -> dict[Place, Span]:
        """What there is in these partitions; those that are gone are left out."""
        there = await self._catalog.partitions()
        kept = [place for place in places if place[1] < there.get(place[0], 0)]
        begins, ends = await asyncio.gather(self._offsets(kept, _EARLIEST), self._offsets(kept, _LATEST))
        return {place: (begins[place], end) for place, end in ends.items() if place in begins}

    async def groups(self, *names: str) -> list[Group]:
        """:raises BusRefused: one that is named is not there."""
        found = await self._standings(names, strict=bool(names))
        dead = {name: dead_topic(name) for name in found}
        places = {place for standing in found.values() for place in standing.positions}
        spans = await self.spans(places | {(topic, 0) for topic in dead.values()})
        return [
            Group(
                name=name,
                topics=tuple(sorted({topic for topic, _ in standing.positions})),
                ready=sum(size(span) for span in _waiting(standing, spans).values()),
                unacknowledged=0,
                dead=size(spans.get((dead[name], 0), (0, 0))),
                subscribers=standing.subscribers,
            )
            for name, standing in sorted(found.items())
        ]

    async def peek(self, group: str, limit: int, dead: bool) -> list[Delivery]:
        """:raises BusRefused: there is no such group."""
        standing = (await self._standings([group]))[group]
        if dead:
            spans = await self.spans([(dead_topic(group), 0)])
        else:
            spans = _waiting(standing, await self.spans(standing.positions))
        spans = {place: span for place, span in spans.items() if size(span)}
        if not spans or limit < 1:
            return []
        with driver(self._address.brokers, f"can't look into the group {group}"):
            return await asyncio.to_thread(first_of, self._address, spans, limit)

    async def purge(self, group: str, dead: bool, forget: bool) -> int:
        """:raises BusRefused: there is no such group, or it has subscribers."""
        standing = (await self._standings([group]))[group]
        count = 0
        if not dead or forget:
            spans = _waiting(standing, await self.spans(standing.positions))
            count += sum(size(span) for span in spans.values())
            if not forget:
                await self._skip(group, {place: end for place, (_, end) in spans.items()})
        if dead or forget:
            spans = await self.spans([(dead_topic(group), 0)])
            count += sum(size(span) for span in spans.values())
            if not forget:
                await self._empty(spans)
        if forget:
            await self._forget(group)
        return count

    async def _standings(self, names: Sequence[str], strict: bool = True) -> dict[str, Standing]:
        """Of these groups, or of all."""
        members = await self._members(names)
        wanted = names or list(members or ())
        committed = await asyncio.gather(*[self.positions(name) for name in wanted])
        standings = {
            name: Standing(
                {place: offset for place, offset in positions.items() if not is_dead_topic(place[0])},
                None if members is None else members.get(name, 0),
            )
            for name, positions in zip(wanted, committed, strict=True)
            if positions or name in (members or ())
        }
        missing = [name for name in wanted if name not in standings]
        if missing and strict:
            raise BusRefused(f"there is no group {missing[0]}")
        return standings

    async def _members(self, names: Sequence[str]) -> dict[str, int] | None:
        """How many subscribers groups have; None if not all brokers tell, as long as it is known which are wanted.

        The driver could be asked for one group by name, of its coordinator, but that ends the process if it moves.
        """
        deadline = time.monotonic() + self._address.options.timeout
        one = names[0] if len(names) == 1 else None
        with driver(self._address.brokers, "can't list the groups"):
            while True:
                try:
                    found = await asyncio.to_thread(_list_groups, self._admin, one)
                    break
                except KafkaException:
                    if names:
                        return None
                    if time.monotonic() > deadline:
                        raise
        return {
            group.id: len(group.members)
            for group in found
            if group.state != "Dead" and group.protocol_type in ("consumer", "")
        }

    async def _offsets(self, places: Iterable[Place], which: OffsetSpec) -> dict[Place, int]:
        wanted = {TopicPartition(*place): which for place in places}
        if not wanted:
            return {}
        with driver(self._address.brokers, "can't see the ends of the partitions"):
            found = await self._ask(lambda **how: self._admin.list_offsets(wanted, **how))
        return {(place.topic, place.partition): answer.offset for place, answer in found.items()}

    async def _skip(self, group: str, ends: Mapping[Place, int]) -> None:
        deadline = time.monotonic() + _LEAVING_SECONDS
        while ends and not await self.move(group, ends):
            # A subscriber that was closed just now may still be among them.
            if time.monotonic() > deadline:
                raise _in_use(group)
            await asyncio.sleep(_LOOK_AGAIN)

    async def _empty(self, spans: Mapping[Place, Span]) -> None:
        places = [TopicPartition(*place, end) for place, (_, end) in spans.items()]
        if places:
            with driver(self._address.brokers, "can't remove the dead letters"):
                await self._ask(lambda **how: self._admin.delete_records(places, **how))

    async def _forget(self, group: str) -> None:
        deadline = time.monotonic() + _LEAVING_SECONDS
        with driver(self._address.brokers, f"can't forget the group {group}"):
            while True:
                try:
                    await self._ask(lambda **how: self._admin.delete_consumer_groups([group], **how))
                    break
                except KafkaException as error:
                    if code_of(error) == KafkaError.GROUP_ID_NOT_FOUND:
                        break
                    if code_of(error) not in IN_USE:
                        raise
                    if time.monotonic() > deadline:
                        raise _in_use(group) from error
                await asyncio.sleep(_LOOK_AGAIN)
            topic = dead_topic(group)
            if topic in await self._catalog.partitions():
                await self._ask(lambda **how: self._admin.delete_topics([topic], **how))
            self._catalog.forget([topic])

    async def _ask(self, call: Callable[..., Mapping[Key, Future[Any]]]) -> dict[Key, Any]:
        timeout = self._address.options.timeout
        return await asked(lambda: call(request_timeout=timeout), timeout)


def _list_groups(admin: AdminClient, group: str | None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what is meant to replace it is what ends the process
        return admin.list_groups(group=group, timeout=_MEMBERS_SECONDS)


def _in_use(group: str) -> BusRefused:
    return BusRefused(
        f"the group {group} has subscribers, and Kafka changes a group only while it has none: close them first"
    )


def _waiting(standing: Standing, spans: Mapping[Place, Span]) -> dict[Place, Span]:
    return {
        place: (max(offset, spans[place][0]), spans[place][1])
        for place, offset in standing.positions.items()
        if place in spans
    }
