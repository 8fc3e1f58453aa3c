"""A partition that one subscriber reads, and how far it has come.

    offsets   … done │ position … pending … seen │ not read yet

Everything below ``position`` is done: this is what is committed. A message that is done before one ahead of it does not
move it. The event loop writes all of it but for the last three, which are the reading thread's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.bus.base import Delivery


class Lane:
    __slots__ = (
        "attempts", "committed", "epoch", "name", "partition", "paused", "pending", "place", "position", "reading",
        "seen", "topic", "waiting",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}/{partition}"
        self.place = f"{self.name}/"
        self.pending: dict[int, None] = {}
        self.attempts: dict[int, int] = {}
        """Of those that failed: how often they will have been tried."""
        self.seen = -1
        self.position = -1
        self.epoch = 0
        """Counts how often it was set back; what was read before that is not wanted."""
        self.waiting = False
        """Set back, and not yet to be read on."""
        self.reading = 0
        """The epoch that the thread is in."""
        self.committed = -1
        self.paused = False

    def arrive(self, offsets: Iterable[int], seen: int) -> None:
        """These were read, and all up to ``seen`` that are not among them are none of ours."""
        self.pending.update(dict.fromkeys(offsets))
        self.seen = seen
        self._settle()

    def end(self, offsets: Iterable[int]) -> int:
        """They are done. How many of them were pending."""
        before = len(self.pending)
        for offset in offsets:
            self.pending.pop(offset, None)
            if self.attempts:
                self.attempts.pop(offset, None)
        self._settle()
        return before - len(self.pending)

    def drop(self, offsets: Iterable[int]) -> int:
        """They are not done, and not with us any more. How many of them were pending."""
        dropped = [offset for offset in offsets if offset in self.pending]
        for offset in dropped:
            del self.pending[offset]
        if dropped:
            self.seen = min(self.seen, *dropped)
        return len(dropped)

    def _settle(self) -> None:
        self.position = max(self.position, min(self.seen, min(self.pending, default=self.seen)))


def offset_of(delivery: Delivery) -> int:
    return int(delivery.position.rpartition("/")[2])
