"""The schedule store on Redis or Valkey.

All keys of an app named NAME begin with ``uttu:{NAME}:jobs:``; the braces keep them on one node of a cluster.

    entries        hash    name → the schedule, JSON
    states         hash    name → its state, JSON; compared as a whole before it is changed
    fires          hash    id → a run to be sent, JSON
    leader         hash    owner, token; expires with the leadership
    token          number  the highest token assigned
    mark:ID        hash    state (running, waiting, over), owner, until (ms); expires when it is no longer needed
    alone:ENTRY    text    the id of the active run of a schedule without overlap; expires with its mark

Operations are Lua scripts, so each is atomic, and times are the server's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from uttu import former
from uttu.clients.addresses import mask_password
from uttu.clients.redis.errors import REDIS_ERRORS, explain_error, map_errors
from uttu.errors import ConfigError, StoreError
from uttu.jobs.schedules.base import BeginResult, RunState
from uttu.jobs.schedules.schedule import Schedule, ScheduledRun, ScheduleState, StoredSchedule

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

# KEYS: states, fires, leader. ARGV: name, before, after, token or '', number of added runs, (id, run)…, dropped id…
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

# KEYS: mark, alone. ARGV: run id, owner, ms, keep ms, '1' if it must not overlap
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

# KEYS: mark, alone. ARGV: run id, owner, ms, keep ms, '1' if it must not overlap
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

# KEYS: mark, alone. ARGV: run id, owner or '', keep ms, new state
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

# KEYS: the marks
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

# Take over the data of Weft. KEYS: the old names, each followed by its new name; at the end the leader's old name
_ADOPT: Final = """
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
if redis.call('EXISTS', KEYS[#KEYS]) == 1 then return 0 end
for i = 1, #KEYS - 1, 2 do
    if redis.call('EXISTS', KEYS[i]) == 1 then redis.call('RENAMENX', KEYS[i], KEYS[i + 1]) end
end
return 1
"""
_ADOPTED: Final = ("entries", "states", "fires", "token")

# How long a mark is kept after its last renewal: long enough for any broker to deliver the task again.
_KEEP_MS: Final = 86_400_000


class RedisScheduleStore:
    """See :mod:`uttu.jobs.schedules.base`. ``url`` is in Celery's form, also ``redis+socket:///PATH`` or
    ``redis+unix://``.
    """

    def __init__(self, url: str, name: str) -> None:
        self.place = mask_password(url)
        self._prefix = f"uttu:{{{name}}}:jobs:"
        try:
            self._client = redis.Redis.from_url(
                _driver_url(url), socket_connect_timeout=5, socket_timeout=10, retry=Retry(NoBackoff(), 0), protocol=2
            )
        except ValueError as error:
            raise ConfigError(f"{self.place} is not the address of a Redis server: {error}") from error
        scripts = {"put": _PUT, "remove": _REMOVE, "change": _CHANGE, "lead": _LEAD, "resign": _RESIGN}
        self._former_prefix = f"weft:{{{former.former_name(name)}}}:jobs:"
        self._is_adopted = False
        scripts |= {"adopt": _ADOPT, "begin": _BEGIN, "extend": _EXTEND, "end": _END, "marks": _MARKS}
        self._scripts = {name: self._client.register_script(text) for name, text in scripts.items()}

    def entries(self) -> list[StoredSchedule]:
        with self._map_errors():
            pipe = self._client.pipeline(transaction=True)
            pipe.hgetall(self._key("entries"))
            pipe.hgetall(self._key("states"))
            entries, states = pipe.execute()
        schedules = [
            StoredSchedule(_decode(entries[name], Schedule), _decode(states[name], ScheduleState)) for name in entries
        ]
        return sorted(schedules, key=lambda stored: stored.entry.name)

    def put(self, entry: Schedule, state: ScheduleState, *, replace: bool = False) -> bool:
        arguments = [entry.name, msgspec.json.encode(entry), msgspec.json.encode(state), int(replace)]
        return bool(self._run("put", ["entries", "states"], arguments))

    def remove(self, name: str) -> bool:
        return bool(self._run("remove", ["entries", "states", "fires"], [name]))

    def change(
        self,
        name: str,
        before: ScheduleState,
        after: ScheduleState,
        *,
        token: int | None = None,
        add: Iterable[ScheduledRun] = (),
        drop: Iterable[ScheduledRun] = (),
    ) -> bool:
        added = [value for run in add for value in (run.id, msgspec.json.encode(run))]
        arguments: list[Any] = [name, msgspec.json.encode(before), msgspec.json.encode(after)]
        arguments += ["" if token is None else token, len(added) // 2, *added, *(run.id for run in drop)]
        return bool(self._run("change", ["states", "fires", "leader"], arguments))

    def runs(self) -> list[ScheduledRun]:
        with self._map_errors():
            texts: Any = self._client.hvals(self._key("fires"))
        return sorted((_decode(text, ScheduledRun) for text in texts), key=lambda run: run.due)

    def lead(self, owner: str, seconds: float) -> int | None:
        return self._run("lead", ["leader", "token"], [owner, _ms(seconds)]) or None

    def resign(self, owner: str) -> None:
        self._run("resign", ["leader"], [owner])

    def begin(self, run_id: str, owner: str, seconds: float, alone: str = "") -> BeginResult:
        return BeginResult(
            self._run_on_mark("begin", run_id, alone, [owner, _ms(seconds), _KEEP_MS, int(bool(alone))]).decode()
        )

    def extend(self, run_id: str, owner: str, seconds: float, alone: str = "") -> bool:
        return bool(self._run_on_mark("extend", run_id, alone, [owner, _ms(seconds), _KEEP_MS, int(bool(alone))]))

    def end(self, run_id: str, owner: str, keep_seconds: float, alone: str = "", *, again: bool = False) -> None:
        self._run_on_mark(
            "end", run_id, alone, [owner, _ms(keep_seconds), RunState.WAITING if again else RunState.OVER]
        )

    def marks(self, run_ids: Sequence[str]) -> list[RunState]:
        if not run_ids:
            return []
        return [RunState(each.decode()) for each in self._run("marks", [f"mark:{run_id}" for run_id in run_ids], [])]

    def close(self) -> None:
        with contextlib.suppress(*REDIS_ERRORS), map_errors():
            self._client.close()

    def _run_on_mark(self, script: str, run_id: str, alone: str, arguments: list[Any]) -> Any:
        return self._run(script, [f"mark:{run_id}", f"alone:{alone}"], [run_id, *arguments])

    def _run(self, script: str, keys: list[str], arguments: list[Any]) -> Any:
        with self._map_errors():
            return self._scripts[script](keys=[self._key(key) for key in keys], args=arguments)

    def _adopt(self) -> None:
        """Take over the schedules that Weft stored here.

        :raises StoreError: a beat of Weft still sends them.
        """
        keys = [key for name in _ADOPTED for key in (self._former_prefix + name, self._key(name))]
        try:
            if not self._scripts["adopt"](keys=[*keys, self._former_prefix + "leader"]):
                raise StoreError(f"{self.place}: A beat of Weft still sends the schedules of this store. Stop it first")
        except redis.exceptions.NoPermissionError:
            pass  # a user without access to these keys has no schedules of Weft
        self._is_adopted = True

    def _key(self, name: str) -> str:
        return self._prefix + name

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            with map_errors():
                if not self._is_adopted:
                    self._adopt()
                yield
        except REDIS_ERRORS as error:
            raise StoreError(f"Cannot read or write the schedules on {explain_error(self.place, error)}") from error


def _driver_url(url: str) -> str:
    """Convert Celery's form of an address to the driver's."""
    scheme, _, rest = url.partition("://")
    place, _, options = rest.partition("?")
    if scheme in ("redis+socket", "redis+unix"):
        options = options.replace("virtual_host=", "db=")
        return f"unix://{place}" + (f"?{options}" if options else "")
    return url


def _decode(text: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(former.rename_schedule(text), type=kind)
    except msgspec.MsgspecError as error:
        raise StoreError(f"A schedule was written by another version of Uttu: {error}") from error


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
