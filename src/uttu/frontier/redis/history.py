"""The History on Redis. See ``lua/7_history.lua`` for its keys.

Samples are read in chunks of at most ``_AT_ONCE``, from the sets of all resolutions. A sample may be in several.
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from uttu.frontier.redis.crawl import RedisCrawl, decode_names
from uttu.model.history import MOST_EVENTS, RESOLUTIONS, CrawlEvent, CrawlSample, EventKind

_AT_ONCE: Final = 1000
_encode_sample = msgspec.msgpack.Encoder().encode
_decode_sample = msgspec.msgpack.Decoder(CrawlSample).decode
_encode_fields = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(dict[str, str | int | float]).decode


class RedisHistory:
    """See :class:`uttu.frontier.base.History`."""

    def __init__(self, crawl: RedisCrawl) -> None:
        self._crawl = crawl
        # Each call has an id: a call that is repeated because its reply was lost adds its events once.
        self._questions = (f"{secrets.token_hex(4)}{number:x}" for number in itertools.count())

    async def record(self, sample: CrawlSample) -> None:
        await self._crawl.operate("record", [sample.at, RESOLUTIONS], bool, _encode_sample(sample))

    async def samples(self, since: float, until: float = math.inf) -> list[CrawlSample]:
        await self._crawl.tally()  # raises if the crawl is gone
        found: dict[float, CrawlSample] = {}
        for distance, _ in RESOLUTIONS:
            start, chunk = repr(since), [b""] * _AT_ONCE
            while len(chunk) == _AT_ONCE:
                key, end = self._crawl.key(f"samples:{distance}"), repr(until)
                chunk = await self._crawl.read("ZRANGEBYSCORE", key, start, end, "LIMIT", 0, _AT_ONCE)
                for kept in chunk:
                    sample = _decode_sample(kept)
                    found[sample.at] = sample
                    start = f"({sample.at!r}"
        return [found[at] for at in sorted(found)]

    async def add_events(self, events: Sequence[tuple[EventKind, dict[str, str | int | float]]]) -> None:
        latest = events[-MOST_EVENTS:]
        words = [word for kind, fields in latest for word in (str(kind), _encode_fields(fields).decode())]
        if words:
            await self._crawl.operate("add_events", [next(self._questions), MOST_EVENTS, words], bool)

    async def events(self, after: int, limit: int, before: int = 0) -> list[CrawlEvent]:
        if limit <= 0:
            return []
        key, latest = self._crawl.key("events"), after < 0
        end = f"({before}-0" if before else "+"
        command = ("XREVRANGE", key, end, "-") if latest else ("XRANGE", key, f"({after}-0", "+")
        found, kept = await self._crawl.read_both(
            (*command, "COUNT", min(limit, MOST_EVENTS)), ("GET", self._crawl.key("tally"))
        )
        self._crawl.tally_of(kept)  # raises if the crawl is gone
        events = []
        for name, values in reversed(found) if latest else found:
            position, fields = int(name.partition(b"-")[0]), decode_names(values)
            events.append(
                CrawlEvent(
                    position=position,
                    at=position / 1e6,
                    kind=EventKind(fields["k"].decode()),
                    fields=_decode_fields(fields["f"]),
                )
            )
        return events
