"""What one subscriber holds, in the event loop; see :class:`weft.bus.subscription.Source`.

A message that failed is not kept: its partition is set back to it and read again after the wait, so that nothing behind
it overtakes it, and nothing is held meanwhile. How often it was tried is known in this process only.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from weft.bus.base import Delivery
from weft.bus.kafka.lane import Lane
from weft.bus.kafka.reader import Reader
from weft.bus.kafka.run import Run
from weft.bus.kafka.sender import Sender
from weft.bus.kafka.wire import dead_record
from weft.errors import BusError, BusUnavailable


class KafkaSource:
    """``make`` makes the reader that is to tell it what arrives."""

    def __init__(self, make: Callable[[KafkaSource], Reader], sender: Sender, group: str) -> None:
        self._sender = sender
        self._group = group
        self._ready: deque[Run] = deque()
        self._out: list[Run] = []
        """What was handed out last."""
        self._lanes: dict[str, Lane] = {}
        self._leaving: list[tuple[Sequence[Lane], threading.Event]] = []
        self._changed = asyncio.Event()
        self._joined = asyncio.Event()
        self._error: BusError | None = None
        self._reader = make(self)

    async def start(self, wait: float) -> None:
        """Begin to read; returns when the group has let it in, if that is waited for.

        :raises BusError: it has not.
        """
        self._reader.start()
        if not wait:
            return
        try:
            async with asyncio.timeout(wait):
                await self._joined.wait()
        except BaseException as error:
            await self._reader.close()
            if not isinstance(error, TimeoutError):
                raise
            raise BusUnavailable(
                f"the group {self._group} on Kafka at {self._reader.address.brokers} did not let a subscriber in "
                f"within {wait:g} s; perhaps others of it do not answer"
            ) from error
        if self._error:
            raise self._error

    # As a source.

    async def receive(self, limit: int) -> list[Delivery]:
        while not (self._ready or self._fetch(limit)):
            if self._error:
                raise self._error
            self._changed.clear()
            self._reader.want()
            await self._changed.wait()
        taken: list[Delivery] = []
        self._out = []
        while self._ready and len(taken) < limit:
            run = self._ready.popleft()
            if len(run.offsets) > limit - len(taken):
                run, rest = run.cut(limit - len(taken))
                self._ready.appendleft(rest)
            taken += run.deliveries
            self._out.append(run)
            # What is tried again goes alone, and nothing behind it goes before it.
            if run.was_tried or (self._ready and self._ready[0].was_tried):
                break
        return taken

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        freed = 0
        for lane, offsets in self._by_lane(deliveries).items():
            freed += lane.end(offsets)
        self._release(freed)

    async def again(self, deliveries: Sequence[Delivery], after: float) -> None:
        failed = self._by_lane(deliveries)
        attempts = {delivery.position: delivery.attempt for delivery in deliveries}
        freed = 0
        for lane, offsets in failed.items():
            lane.attempts |= {offset: attempts[f"{lane.place}{offset}"] + 1 for offset in offsets}
            freed += lane.drop(offsets)
        freed += self._put_back(failed)
        for lane, offsets in failed.items():
            lane.epoch += 1
            self._reader.rewind(lane, min(offsets), lane.epoch)
            asyncio.get_running_loop().call_later(after, self._reader.go_on, lane, lane.epoch)
        self._release(freed)

    async def bury(self, deliveries: Sequence[Delivery], reason: str) -> None:
        # Those of partitions that went to others are theirs to bury.
        ours = [delivery for delivery in deliveries if self._by_lane([delivery])]
        while ours:
            try:
                await self._sender.send([dead_record(self._group, delivery, reason) for delivery in ours])
                break
            except BusUnavailable:  # it has waited long enough by itself
                if self._error:
                    raise self._error from None
        await self.done(ours)

    def hold(self, paused: bool) -> None:
        self._reader.hold(paused)

    async def close(self) -> None:
        self._put_back(self._lanes.values())
        self._ready.clear()
        self._release(0)
        await self._reader.close()

    # What the reader tells.

    def assigned(self, lanes: Sequence[Lane]) -> None:
        self._lanes |= {lane.name: lane for lane in lanes}
        self._joined.set()

    def arrived(self, runs: Sequence[Run]) -> None:
        unwanted = 0
        for run in runs:
            if not self._is_ours(run.lane) or run.epoch != run.lane.epoch:
                unwanted += len(run.offsets)
                continue
            run.lane.arrive(run.offsets, run.seen)
            if run.lane.attempts:
                self._ready.extend(_counted(run))
            elif run.offsets:
                self._ready.append(run)
        self._reader.free(unwanted)
        if self._ready:
            self._changed.set()

    def revoked(self, lanes: Sequence[Lane], released: threading.Event) -> None:
        freed = self._put_back(lanes)
        self._leaving.append((lanes, released))
        self._release(freed)

    def gone(self, lanes: Sequence[Lane]) -> None:
        freed = self._put_back(lanes)
        for lane in lanes:
            if self._is_ours(lane):
                del self._lanes[lane.name]
            freed += len(lane.pending)
        self._release(freed)

    def ended(self, error: BusError | None) -> None:
        self._error = error or BusError("the subscription is closed")
        self._joined.set()
        self._changed.set()

    # How it is done.

    def _fetch(self, limit: int) -> bool:
        """Whether something is ready now."""
        self._reader.fetch(limit)
        return bool(self._ready)

    def _is_ours(self, lane: Lane) -> bool:
        return self._lanes.get(lane.name) is lane

    def _by_lane(self, deliveries: Sequence[Delivery]) -> dict[Lane, list[int]]:
        """Where those of them are whose partitions did not go to others."""
        found: dict[Lane, list[int]] = defaultdict(list)
        out = [run for run in self._out if self._is_ours(run.lane)]
        if len(deliveries) == sum(len(run.offsets) for run in self._out):  # all that was handed out, as nearly always
            for run in out:
                found[run.lane] += run.offsets
            return found
        wanted = {delivery.position for delivery in deliveries}
        for run in out:
            for delivery, offset in zip(run.deliveries, run.offsets, strict=True):
                if delivery.position in wanted:
                    found[run.lane].append(offset)
        return found

    def _put_back(self, lanes: Iterable[Lane]) -> int:
        """Hand out nothing of these lanes that was not handed out yet. How many that were."""
        these = set(lanes)
        dropped = [run for run in self._ready if run.lane in these]
        self._ready = deque(run for run in self._ready if run.lane not in these)
        return sum(run.lane.drop(run.offsets) for run in dropped)

    def _release(self, freed: int) -> None:
        self._reader.free(freed)
        still = []
        for lanes, released in self._leaving:
            if any(lane.pending for lane in lanes):
                still.append((lanes, released))
            else:
                released.set()
        self._leaving = still


def _counted(run: Run) -> Iterator[Run]:
    """Each for itself, with the attempt that it is."""
    for delivery, offset in zip(run.deliveries, run.offsets, strict=True):
        attempt = run.lane.attempts.get(offset, 1)
        yield Run(run.lane, [msgspec.structs.replace(delivery, attempt=attempt)], [offset])
