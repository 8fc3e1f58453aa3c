"""A partition that one subscriber reads, and how far it has come.

    offsets   … done │ position … pending … seen │ not read yet

Everything below ``position`` is done: this is what is committed. A message that is done before one ahead of it does not
move it. The event loop writes all of it but for the last four, which belong to whoever has the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


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
        self.pending: list[int] = []
        """In order: what is set back is dropped first."""
        self.attempts: dict[int, int] = {}
        """Of those that failed: how often they will have been tried."""
        self.seen = -1
        self.position = -1
        self.epoch = 0
        """Counts how often it was set back; what was read before that is not wanted."""
        self.waiting = False
        """Set back, and not yet to be read on."""
        self.reading = 0
        """The epoch that it is read in."""
        self.committed = -1
        self.paused = False

    def arrive(self, offsets: Iterable[int], seen: int) -> None:
        """These were read, and all up to ``seen`` that are not among them are none of ours."""
        self.pending.extend(offsets)
        self.seen = seen
        self._settle()

    def end(self, offsets: Collection[int]) -> int:
        """They are done. How many of them were pending."""
        ended = self._remove(offsets)
        for offset in offsets if self.attempts else ():
            self.attempts.pop(offset, None)
        self._settle()
        return len(ended)

    def drop(self, offsets: Collection[int]) -> int:
        """They are not done, and not with us any more. How many of them were pending."""
        dropped = self._remove(offsets)
        if dropped:
            self.seen = min(self.seen, *dropped)
        return len(dropped)

    def _remove(self, offsets: Collection[int]) -> Collection[int]:
        """Those of them that were pending."""
        first = self.pending[: len(offsets)]
        if first == offsets:  # in order, as nearly always
            del self.pending[: len(offsets)]
            return first
        removed = set(offsets).intersection(self.pending)
        self.pending = [offset for offset in self.pending if offset not in removed]
        return removed

    def _settle(self) -> None:
        self.position = max(self.position, min(self.seen, self.pending[0] if self.pending else self.seen))
