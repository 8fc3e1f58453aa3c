"""Rename the keys that Weft left on a Redis server or cluster: see :mod:`uttu.former`.

``weft:crawls`` is renamed last, so that Uttu refuses the server until everything else is renamed. An interrupted rename
can be repeated: keys that have their new name already are skipped.

Renaming is atomic if both names are in one slot of a cluster. If not (the default names of buses and apps change their
hash tag), the key is copied with DUMP and RESTORE, then removed. If that is interrupted in between, both keys exist and
are equal, and the next run removes the old one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import msgspec
import redis.asyncio.cluster as aiocluster
import redis.exceptions as refused

from uttu import former
from uttu.clients.redis.address import RedisClient
from uttu.clients.redis.connection import execute_at
from uttu.clients.redis.errors import call_driver
from uttu.errors import StoreError

# A worker or subscriber without a heartbeat for this time counts as dead.
_ALIVE_SECONDS: Final = 15.0
_BATCH: Final = 500
_RENAME: Final = """
local renamed = 0
for i = 1, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    if redis.call('RENAMENX', KEYS[i], KEYS[i + 1]) == 0 then return {renamed, KEYS[i + 1]} end
    renamed = renamed + 1
  end
end
return {renamed, ''}
"""
_WORKERS: Final = re.compile(r"weft:\{(?P<name>[^}]+)\}:\d+:workers")
_SUPERVISOR: Final = re.compile(r"weft:\{(?P<name>[^}]+)\}:supervisor")
_LEADER: Final = re.compile(r"weft:\{(?P<name>[^}]+)\}:jobs:leader")
_ENTRIES: Final = re.compile(r"weft:\{(?P<name>[^}]+)\}:jobs:entries")
_BEATS: Final = re.compile(r"weft:bus:\{(?P<name>[^}]+)\}:beats:.+", re.DOTALL)
_LISTENING: Final = re.compile(r"weft:bus:\{(?P<name>[^}]+)\}:listening")
_GROUPS: Final = re.compile(r"weft:bus:\{(?P<name>[^}]+)\}:groups")


class RenamedKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the renamed crawls, apps and buses, and the number of renamed keys."""

    crawls: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    buses: tuple[str, ...] = ()
    keys: int = 0


async def has_former_keys(client: RedisClient, old: str, new: str) -> bool:
    """Return whether the key ``old`` exists, and ``new`` does not; False if the user may not read them."""
    try:
        if await call_driver(execute_at(client, new, "EXISTS", new)):
            return False
        return bool(await call_driver(execute_at(client, old, "EXISTS", old)))
    except refused.NoPermissionError:
        return False


async def rename_keys(client: RedisClient) -> RenamedKeys:
    """Rename all keys of Weft.

    :raises StoreError: a process of Weft still uses them, or a key with the new name exists.
    :raises Exception: one of ``REDIS_ERRORS``.
    """
    members = await execute_at(client, former.CRAWLS_KEY, "SMEMBERS", former.CRAWLS_KEY)
    crawls = sorted(name.decode() for name in members)
    apps, buses = set[str](), set[str]()
    async for keys in _scan(client):
        for key in keys:
            await _check_idle(client, key)
            if match := _ENTRIES.fullmatch(key):
                apps.add(match["name"])
            elif match := _GROUPS.fullmatch(key):
                buses.add(match["name"])
    for crawl in crawls:
        old, new = f"weft:{{{crawl}}}", f"uttu:{{{crawl}}}"
        if await execute_at(client, old, "EXISTS", old) and await execute_at(client, new, "EXISTS", new):
            raise StoreError(f"The crawl {crawl!r} exists under two names, {old} and {new}. Remove one of them first")
    renamed = 0
    async for keys in _scan(client):
        renamed += await _rename(client, keys)
    if crawls:
        await execute_at(client, "uttu:crawls", "SADD", "uttu:crawls", *crawls)
        renamed += int(await execute_at(client, former.CRAWLS_KEY, "UNLINK", former.CRAWLS_KEY))
    return RenamedKeys(crawls=tuple(crawls), apps=tuple(sorted(apps)), buses=tuple(sorted(buses)), keys=renamed)


async def _scan(client: RedisClient) -> AsyncIterator[list[str]]:
    """Yield the keys of Weft on all nodes, except ``weft:crawls``, in batches."""
    batch = []
    async for raw in client.scan_iter(match=former.KEY_PATTERN, count=_BATCH):
        key = raw.decode(errors="surrogateescape")
        if former.rename_key(key):
            batch.append(key)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


async def _check_idle(client: RedisClient, key: str) -> None:
    """:raises StoreError: this key shows that a process of Weft is alive."""
    if match := _SUPERVISOR.fullmatch(key):
        raise StoreError(f"The crawl {match['name']!r} is running on Weft. Stop it first, and wait 15 seconds")
    if match := _LEADER.fullmatch(key):
        raise StoreError(f"A beat of Weft sends the schedules of app {match['name']!r}. Stop it first")
    if match := _LISTENING.fullmatch(key):
        raise StoreError(f"The bus {match['name']!r} has subscribers on Weft. Stop them first, and wait 15 seconds")
    if match := _WORKERS.fullmatch(key):
        reports = await execute_at(client, key, "HVALS", _encode(key))
        latest = max((float(each.partition(b" ")[0]) for each in reports), default=0.0)
        if await _now(client, key) - latest < _ALIVE_SECONDS:
            raise StoreError(f"The crawl {match['name']!r} has workers on Weft. Stop them first, and wait 15 seconds")
    if match := _BEATS.fullmatch(key):
        beats = await execute_at(client, key, "ZRANGE", _encode(key), "-1", "-1", "WITHSCORES")
        if beats and await _now(client, key) - float(_last(beats)) / 1000 < _ALIVE_SECONDS:
            raise StoreError(f"The bus {match['name']!r} has subscribers on Weft. Stop them first, and wait 15 seconds")


def _last(answer: list[Any]) -> Any:
    """Return the last score; some versions of the driver return pairs."""
    return answer[-1][-1] if isinstance(answer[-1], tuple | list) else answer[-1]


async def _now(client: RedisClient, key: str) -> float:
    """Return the Unix time of the node that holds a key."""
    script = "local now = redis.call('TIME') return now[1] .. '.' .. string.format('%06d', now[2])"
    return float(await execute_at(client, key, "EVAL", script, 1, _encode(key)))


async def _rename(client: RedisClient, keys: Iterable[str]) -> int:
    renamed = 0
    pairs = [(key, new) for key in keys if (new := former.rename_key(key))]
    for _, group in itertools.groupby(sorted(pairs, key=_slot_of), key=_slot_of):
        same_slot = list(group)
        if isinstance(client, aiocluster.RedisCluster) and _tag_of(same_slot[0][0]) != _tag_of(same_slot[0][1]):
            for old, new in same_slot:
                renamed += await _copy(client, old, new)
            continue
        arguments = [_encode(key) for pair in same_slot for key in pair]
        count, existing = await execute_at(client, same_slot[0][0], "EVAL", _RENAME, len(arguments), *arguments)
        if existing:
            raise StoreError(
                f"The key {existing.decode(errors='replace')} exists. Remove it, or {same_slot[0][0]}, first"
            )
        renamed += int(count)
    return renamed


async def _copy(client: RedisClient, old: str, new: str) -> int:
    """Rename a key to another slot of a cluster."""
    data = await execute_at(client, old, "DUMP", _encode(old))
    if data is None:  # it has expired
        return 0
    ttl_ms = max(0, int(await execute_at(client, old, "PTTL", _encode(old))))
    try:
        await execute_at(client, new, "RESTORE", _encode(new), ttl_ms, data)
    except refused.ResponseError as error:
        if "BUSYKEY" not in str(error):
            raise
        if await execute_at(client, new, "DUMP", _encode(new)) != data:
            raise StoreError(f"The key {new} exists. Remove it, or {old}, first") from error
    return int(await execute_at(client, old, "UNLINK", _encode(old)))


def _slot_of(pair: tuple[str, str]) -> tuple[str, str]:
    return _tag_of(pair[0]), _tag_of(pair[1])


def _tag_of(key: str) -> str:
    return key.partition("{")[2].partition("}")[0]


def _encode(key: str) -> bytes:
    """Encode a key; the names of lanes in it may be any bytes."""
    return key.encode(errors="surrogateescape")
