"""Schedules on Redis or Valkey.

All keys of an app named NAME begin with ``weft:{NAME}:jobs:``; the braces keep them on one node of a cluster.

    entries        hash    name → the entry, JSON
    states         hash    name → its state, JSON; compared as a whole before it is changed
    fires          hash    id → a fire that is to be sent, JSON
    leader         hash    owner, token; expires with the leadership
    token          number  the highest token given out
    mark:ID        hash    state (running, waiting, over), owner, until (ms); expires when it need not be known any more
    alone:ENTRY    text    the id of the fire that runs, where only one may; expires with its mark

Operations are scripts, so each is done as a whole; times in them are the server's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from weft.drivers.redis.refusals import explained
from weft.drivers.urls import masked
from weft.errors import ConfigError, StoreError
from weft.jobs.schedules.base import Begun, Mark
from weft.jobs.schedules.entry import Entry, Fire, Kept, State

_NOW: Final = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""

# KEYS: entries, states. ARGV: name, entry, state, replace
_PUT: Final = """
if ARGV[4] == '0' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return 1
"""

# KEYS: entries, states, fires. ARGV: name
_REMOVE: Final = """
local fires = redis.call('HGETALL', KEYS[3])
for i = 1, #fires, 2 do
    if cjson.decode(fires[i + 1]).entry == ARGV[1] then redis.call('HDEL', KEYS[3], fires[i]) end
end
redis.call('HDEL', KEYS[2], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
"""

# KEYS: states, fires, leader. ARGV: name, before, after, token or '', how many fires are added, (id, fire)…, id…
_CHANGE: Final = """
if ARGV[4] ~= '' and redis.call('HGET', KEYS[3], 'token') ~= ARGV[4] then return 0 end
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
local dropped = 6 + 2 * tonumber(ARGV[5])
for i = 6, dropped - 1, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
for i = dropped, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
return 1
"""

# KEYS: leader, token. ARGV: owner, ms
_LEAD: Final = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return 0 end
if not owner then
    redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', redis.call('INCR', KEYS[2]))
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return tonumber(redis.call('HGET', KEYS[1], 'token'))
"""

# KEYS: leader. ARGV: owner
_RESIGN: Final = """
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""

# KEYS: mark, alone. ARGV: fire, owner, ms, keep ms, whether it must be alone
_BEGIN: Final = (
    _NOW
    + """
local mark = redis.call('HMGET', KEYS[1], 'state', 'until')
if mark[1] == 'over' then return 'over' end
if mark[1] == 'running' and tonumber(mark[2]) > now then return 'busy' end
if ARGV[5] == '1' then
    local other = redis.call('GET', KEYS[2])
    if other and other ~= ARGV[1] then return 'busy' end
    redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
end
redis.call('HSET', KEYS[1], 'state', 'running', 'owner', ARGV[2], 'until', now + ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 'now'
"""
)

# KEYS: mark, alone. ARGV: fire, owner, ms, keep ms, whether it must be alone
_EXTEND: Final = (
    _NOW
    + """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'until', now + ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if ARGV[5] == '1' then redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3]) end
return 1
"""
)

# KEYS: mark, alone. ARGV: fire, owner or '', keep ms, the new state
_END: Final = (
    _NOW
    + """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= '' and owner ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'state', ARGV[4], 'owner', '', 'until', now + ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
return 1
"""
)

# KEYS: those of the marks
_MARKS: Final = (
    _NOW
    + """
local found = {}
for i, key in ipairs(KEYS) do
    local mark = redis.call('HMGET', key, 'state', 'until')
    local state = mark[1] or 'none'
    if (state == 'running' or state == 'waiting') and tonumber(mark[2]) <= now then state = 'lapsed' end
    found[i] = state
end
return found
"""
)

# A mark is known for so long after its lease: long enough for any broker to hand a task out again.
_KEEP_MS: Final = 86_400_000


class RedisStore:
    """See :mod:`weft.jobs.schedules.base`. ``url`` is as Celery writes it: also ``redis+socket:///PATH``, or ``redis+unix://``."""

    def __init__(self, url: str, name: str) -> None:
        self.place = masked(url)
        self._prefix = f"weft:{{{name}}}:jobs:"
        try:
            self._client = redis.Redis.from_url(
                _driver_url(url), socket_connect_timeout=5, socket_timeout=10, retry=Retry(NoBackoff(), 0), protocol=2
            )
        except ValueError as error:
            raise ConfigError(f"{self.place} is not the address of a Redis server: {error}") from error
        scripts = {"put": _PUT, "remove": _REMOVE, "change": _CHANGE, "lead": _LEAD, "resign": _RESIGN}
        scripts |= {"begin": _BEGIN, "extend": _EXTEND, "end": _END, "marks": _MARKS}
        self._scripts = {word: self._client.register_script(text) for word, text in scripts.items()}

    def entries(self) -> list[Kept]:
        with self._mapped():
            pipe = self._client.pipeline(transaction=True)
            pipe.hgetall(self._key("entries"))
            pipe.hgetall(self._key("states"))
            entries, states = pipe.execute()
        found = [Kept(_decoded(entries[name], Entry), _decoded(states[name], State)) for name in entries]
        return sorted(found, key=lambda kept: kept.entry.name)

    def put(self, entry: Entry, state: State, *, replace: bool = False) -> bool:
        words = [entry.name, msgspec.json.encode(entry), msgspec.json.encode(state), int(replace)]
        return bool(self._run("put", ["entries", "states"], words))

    def remove(self, name: str) -> bool:
        return bool(self._run("remove", ["entries", "states", "fires"], [name]))

    def change(
        self,
        name: str,
        before: State,
        after: State,
        *,
        token: int | None = None,
        add: Iterable[Fire] = (),
        drop: Iterable[Fire] = (),
    ) -> bool:
        added = [word for fire in add for word in (fire.id, msgspec.json.encode(fire))]
        words: list[Any] = [name, msgspec.json.encode(before), msgspec.json.encode(after)]
        words += ["" if token is None else token, len(added) // 2, *added, *(fire.id for fire in drop)]
        return bool(self._run("change", ["states", "fires", "leader"], words))

    def fires(self) -> list[Fire]:
        with self._mapped():
            found: Any = self._client.hvals(self._key("fires"))
        return sorted((_decoded(each, Fire) for each in found), key=lambda fire: fire.due)

    def lead(self, owner: str, seconds: float) -> int | None:
        return self._run("lead", ["leader", "token"], [owner, _ms(seconds)]) or None

    def resign(self, owner: str) -> None:
        self._run("resign", ["leader"], [owner])

    def begin(self, fire: str, owner: str, seconds: float, alone: str = "") -> Begun:
        return Begun(self._on_mark("begin", fire, alone, [owner, _ms(seconds), _KEEP_MS, int(bool(alone))]).decode())

    def extend(self, fire: str, owner: str, seconds: float, alone: str = "") -> bool:
        return bool(self._on_mark("extend", fire, alone, [owner, _ms(seconds), _KEEP_MS, int(bool(alone))]))

    def end(self, fire: str, owner: str, keep_seconds: float, alone: str = "", *, again: bool = False) -> None:
        self._on_mark("end", fire, alone, [owner, _ms(keep_seconds), Mark.WAITING if again else Mark.OVER])

    def marks(self, fires: Sequence[str]) -> list[Mark]:
        if not fires:
            return []
        return [Mark(each.decode()) for each in self._run("marks", [f"mark:{fire}" for fire in fires], [])]

    def close(self) -> None:
        self._client.close()

    def _on_mark(self, word: str, fire: str, alone: str, words: list[Any]) -> Any:
        return self._run(word, [f"mark:{fire}", f"alone:{alone}"], [fire, *words])

    def _run(self, word: str, keys: list[str], words: list[Any]) -> Any:
        with self._mapped():
            return self._scripts[word](keys=[self._key(key) for key in keys], args=words)

    def _key(self, word: str) -> str:
        return self._prefix + word

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except redis.RedisError as error:
            raise StoreError(f"the schedules can't be had from {explained(self.place, error)}") from error


def _driver_url(url: str) -> str:
    """Celery's form of an address in the form of the driver; options that are not for it are left out."""
    scheme, _, rest = url.partition("://")
    place, _, options = rest.partition("?")
    if scheme in ("redis+socket", "redis+unix"):
        options = options.replace("virtual_host=", "db=")
        return f"unix://{place}" + (f"?{options}" if options else "")
    return url


def _decoded(text: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise StoreError(f"a schedule was written by another version of Weft: {error}") from error


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
