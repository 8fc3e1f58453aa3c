"""The store's own numbers at one moment, each in two ways: as it counts them, and as there are.

Asked of the server itself, in one atomic step, so that they can be compared at any time.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tests.harness.servers import CommandRefused, RedisServer

CRAWL: Final = "nemesis"

_LEDGER: Final = """
local number = redis.call('HGET', KEYS[1], 'number') or 0
return redis.call('HGETALL', KEYS[1] .. ':' .. number .. ':' .. ARGV[1])
"""
_CENSUS: Final = """
local prefix = KEYS[1] .. ':' .. (redis.call('HGET', KEYS[1], 'number') or 0) .. ':'
local kept = redis.call('GET', prefix .. 'tally')
if not kept then return {} end
local tally, queued, seen, mine = cmsgpack.unpack(kept), 0, 0, 0
for _, lane in ipairs(redis.call('HKEYS', prefix .. 'lanes')) do
  queued = queued + redis.call('LLEN', prefix .. 'queue:' .. lane) + redis.call('ZCARD', prefix .. 'back:' .. lane)
end
for bucket = 0, tally[12] - 1 do seen = seen + redis.call('SCARD', prefix .. 'seen:' .. bucket) end
for _, lease in ipairs(redis.call('HVALS', prefix .. 'leases')) do
  if string.find(lease, ARGV[1], 1, true) then mine = mine + 1 end
end
return {
  tally[1], tally[2], tally[3], tally[4], tally[5], tally[11], queued, redis.call('HLEN', prefix .. 'leases'),
  redis.call('ZCARD', prefix .. 'deadlines'), redis.call('ZCARD', prefix .. 'delayed'),
  redis.call('XLEN', prefix .. 'outbox'), redis.call('HLEN', prefix .. 'dead'), seen, mine,
}
"""


class Census(msgspec.Struct, frozen=True, array_like=True):
    """``pending`` to ``seen`` are the store's counts; what follows was counted: entries in the queues, leases, their
    deadlines, retries, items (each page has one), dead letters, members of the seen sets; and, of the leases, those
    of the worker that was asked about."""

    pending: int
    leased: int
    delayed: int
    done: int
    dead: int
    seen: int
    in_queues: int
    in_leases: int
    in_deadlines: int
    in_delayed: int
    in_outbox: int
    in_dead: int
    in_seen: int
    of_worker: int = 0


def ledger(server: RedisServer, part: str) -> dict[str, str]:
    """The crawl's ``facts``, ``claims`` or ``workers``, as they are kept; nothing while the server is away."""
    found = _asked(server, _LEDGER, part)
    return dict(zip(found[::2], found[1::2], strict=True))


def read(server: RedisServer, pid: int = 0) -> Census | None:
    """The books of the crawl, and how many leases the worker with this process id has; None while the server is away
    or has no crawl."""
    found = _asked(server, _CENSUS, f"-{pid}-")
    return msgspec.convert(found, Census) if found else None


def _asked(server: RedisServer, script: str, *arguments: str) -> list[Any]:
    try:
        answer = server.ask("EVAL", script, 1, f"uttu:{{{CRAWL}}}", *arguments)
    except OSError:
        return []
    except CommandRefused as refusal:
        if str(refusal).startswith("LOADING"):
            return []
        raise
    return answer if isinstance(answer, list) else []
