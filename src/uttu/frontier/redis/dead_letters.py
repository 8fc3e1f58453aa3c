"""Pages and groups of dead letters on Redis, and their revival. See ``lua/3_dead_letters.lua`` for the keys.

Crawls of the version before have dead letters without groups. They are grouped when an operator first looks at them,
in steps of ``_AT_ONCE``. That goes on if the operator, or a page with a time limit, does not wait for the end.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from uttu.errors import RefusedData
from uttu.frontier.redis.cache import CrawlCache
from uttu.frontier.redis.crawl import RedisCrawl, decode_entry, decode_names
from uttu.frontier.redis.records import DeadRecord, scan
from uttu.model import inspection
from uttu.model.inspection import DeadGroup, DeadPage, DeadQuery, group_reason
from uttu.model.lease import DeadLetter

_AT_ONCE: Final = 400
_GROUPS_AT_ONCE: Final = 50
# A search ends after this time, even if it has not looked at MOST_SEARCHED letters.
_SEARCH_SECONDS: Final = 0.05
# Letters of the version before may still come from its workers; they are looked for once in this time.
_REGROUP_SECONDS: Final = 60.0
_LAST: Final = "last"
_member: Final = re.compile(r"[a-z]\d+", re.ASCII).fullmatch
_decode_dead = msgspec.msgpack.Decoder(DeadRecord).decode
_log = logging.getLogger("uttu.frontier")


class DeadGroups(msgspec.Struct, frozen=True):
    """The groups of a crawl: their kinds and messages, by id."""

    names: dict[str, tuple[str, str]]

    def choose(self, kind: str, message: str) -> list[str]:
        """Return the ids of the groups with this kind and message; empty stands for any."""
        return [group for group, name in self.names.items() if kind in ("", name[0]) and message in ("", name[1])]


class _Place(NamedTuple):
    """The place of a letter in the order of its death. The time is text, as Redis gave it, and so stays exact."""

    time: str
    member: str


class RedisDeadLetters:
    """The dead letters of a crawl. See :class:`uttu.frontier.base.Inspector`."""

    def __init__(self, crawl: RedisCrawl, cache: CrawlCache) -> None:
        self._crawl = crawl
        self._cache = cache

    async def page(self, query: DeadQuery) -> DeadPage:
        cursor = _parse_cursor(query.after)
        chosen = (await self._groups()).choose(query.kind, query.message)
        left, letters, more = inspection.MOST_SEARCHED, list[DeadLetter](), bool(chosen)
        match = query.match.encode().lower().decode()  # ASCII letters only
        end = monotonic() + _SEARCH_SECONDS
        while more and left > 0 and len(letters) < query.limit and not (match and monotonic() > end):
            wanted = min(left, _AT_ONCE) if match else min(left, _AT_ONCE, query.limit - len(letters))
            places, more = await self._list_places(chosen, cursor, wanted)
            seqs = [place.member[1:] for place in places]
            found = await self._crawl.operate("read_letters", [seqs, match], list[DeadRecord | bool])
            for place, record in zip(places, found, strict=False):
                cursor, left = place, left - 1
                if isinstance(record, DeadRecord):
                    letters.append(_to_letter(record))
                if len(letters) == query.limit:
                    break
            more = more or (bool(places) and cursor != places[-1])
        return DeadPage(letters, f"{cursor.time}:{cursor.member}" if more and cursor else "")

    async def _list_places(self, groups: list[str], after: _Place | None, limit: int) -> tuple[list[_Place], bool]:
        """Return the places of the latest letters of these groups, and whether there are more."""
        asked = [after.time, after.member, limit] if after else [False, False, limit]
        places, any_more = list[_Place](), False
        for first in range(0, len(groups), _GROUPS_AT_ONCE):
            chunk = groups[first : first + _GROUPS_AT_ONCE]
            more, found = await self._crawl.operate("list_members", [chunk, *asked], tuple[bool, list[str]])
            places += map(_Place, found[::2], found[1::2])
            any_more = any_more or more
        places.sort(key=lambda place: (float(place.time), place.member), reverse=True)
        return places[:limit], any_more or len(places) > limit

    async def groups(self) -> list[DeadGroup]:
        names, found = (await self._groups()).names, []
        ids = list(names)
        for first in range(0, len(ids), _GROUPS_AT_ONCE):
            asked = ids[first : first + _GROUPS_AT_ONCE]
            states = await self._crawl.operate("describe_groups", asked, list[Any])
            for group, state in zip(asked, states, strict=True):
                if state:
                    count, last, lane, entry = state
                    kind, message = names[group]
                    sample = decode_entry(entry, lane).url
                    found.append(DeadGroup(kind=kind, message=message, count=count, last=last, sample=sample))
        return sorted(found, key=lambda group: (-group.count, group.kind, group.message))

    async def revive(self, kind: str, url: str, message: str) -> int:
        now, groups, revived = await self._crawl.now(), await self._groups(), 0
        for group in groups.choose(kind, message):
            name = "\n".join(groups.names[group])
            async for found in scan(self._crawl.server, "ZSCAN", self._crawl.key(f"dead:{group}")):
                # What dies while this runs has died for a new reason.
                seqs = [member[1:].decode() for member, at in found if float(at) <= now]
                for first in range(0, len(seqs), _AT_ONCE):
                    chosen = seqs[first : first + _AT_ONCE]
                    if url:
                        chosen = await self._with_url(chosen, url)
                    if chosen:
                        revived += await self._crawl.operate("revive", [group, name, chosen], int)
        return revived

    async def _with_url(self, seqs: list[str], url: str) -> list[str]:
        found = await self._crawl.read("HMGET", self._crawl.key("dead"), *seqs)
        letters = [(seq, _decode_dead(kept)) for seq, kept in zip(seqs, found, strict=True) if kept is not None]
        return [seq for seq, letter in letters if decode_entry(letter.entry, letter.lane).url == url]

    async def _groups(self) -> DeadGroups:
        now = monotonic()
        if now - self._cache.grouped_at > _REGROUP_SECONDS:
            ungrouped = await self._crawl.operate("count_ungrouped", False, int)
            if ungrouped > 0:
                await asyncio.shield(self._start_grouping(ungrouped))
            self._cache.grouped_at = now
        kept, tally = await self._crawl.read_both(
            ("HGETALL", self._crawl.key("dead:groups")), ("GET", self._crawl.key("tally"))
        )
        self._crawl.tally_of(tally)  # raises if the crawl is gone
        names = {group.decode(): name.partition("\n") for name, group in decode_names(kept).items() if name != _LAST}
        return DeadGroups({group: (kind, message) for group, (kind, _, message) in names.items()})

    def _start_grouping(self, count: int) -> asyncio.Task[None]:
        """The task that groups the letters of this crawl; all who look wait for the same one."""
        task = self._cache.grouping
        if task is None or task.done():
            _log.info("grouping %d dead letters of crawl %r", count, self._crawl.name)
            task = self._cache.grouping = asyncio.create_task(self._group(), name="grouping of dead letters")
            # An error that nobody waits for is found again by the next look.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _group(self) -> None:
        async for found in scan(self._crawl.server, "HSCAN", self._crawl.key("dead")):
            letters = [(seq.decode(), _decode_dead(kept)) for seq, kept in found]
            entries = [[seq, letter.at, group_reason(letter.reason)] for seq, letter in letters]
            for first in range(0, len(entries), _AT_ONCE):
                await self._crawl.operate("group_dead", entries[first : first + _AT_ONCE], bool)


def _parse_cursor(after: str) -> _Place | None:
    """Return the place of the last letter of the page before.

    :raises StoreError: no page ended there.
    """
    if not after:
        return None
    time, _, member = after.partition(":")
    try:
        if math.isfinite(float(time)) and _member(member):
            return _Place(time, member)
    except ValueError:
        pass
    raise RefusedData(f"No page of dead letters ends at {after!r}. Begin with the first page")


def _to_letter(record: DeadRecord) -> DeadLetter:
    return DeadLetter(
        request=decode_entry(record.entry, record.lane),
        kind=record.kind,
        reason=record.reason,
        detail=record.detail,
        status=record.status,
        attempt=record.attempt,
        at=record.at,
    )
