"""What a server's refusals mean: whether waiting helps, and what to say to people."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import redis.asyncio.sentinel as aiosentinel
import redis.exceptions as refused

OLDEST: Final = (6, 2)
REFUSALS: Final = (refused.RedisError, refused.RedisClusterException, OSError, asyncio.TimeoutError)
"""All that the driver raises."""

# Not to be mended by waiting, although the driver counts some of them as connection errors.
_FINAL: Final = (refused.AuthenticationError, refused.AuthorizationError, refused.NoPermissionError)
_PASSING: Final = (
    refused.ConnectionError, refused.TimeoutError, refused.ReadOnlyError, refused.ClusterDownError,
    refused.TryAgainError, refused.OutOfMemoryError, refused.SlotNotCoveredError, OSError, asyncio.TimeoutError,
)  # fmt: skip
_PASSING_WORDS: Final = ("BUSY", "MISCONF", "NOREPLICAS")
# Raised when no node of a cluster answers, or not all of them have been found.
_CLUSTER_WORDS: Final = ("cannot be connected", "slots are not covered")
# And when it was sent from node to node: a slot is on its way.
_SENT_ROUND: Final = "TTL exhausted"

_PERMISSIONS: Final = (
    "The user needs INFO, EVAL and EVALSHA, better also FCALL and FUNCTION, and all commands on keys weft:*; "
    "see ACL SETUSER"
)
# Words in a refusal, and what they advise; the first that fit.
_ADVICE: Final = (
    (("wrongpass", "invalid username", "invalid password"), "Check the user and the password in the address"),
    (("without any password configured",), "It has no password: leave it out of the address"),
    (("noauth", "authentication required"), "It wants a password: redis://:PASSWORD@HOST:PORT"),
    (("channel",), "The user needs channels, too: ACL SETUSER USER allchannels"),
    (("no permission", "noperm"), _PERMISSIONS),
    (("db index", "invalid db"), "Check the number of the database at the end of the address"),
    (("cluster mode is not enabled", "cluster support disabled"), "It is no cluster: write the address as redis://"),
    (("certificate verify failed", "certificate_verify"), "Name the file of its authority: rediss://…?ssl_ca_certs=FILE"),
    (("ssl", "wrong version number"), "Does it speak TLS? If not, write redis:// without the second s"),
    (("protocol error", "invalid response"), "Is another program there? If it speaks TLS, write rediss://"),
    (("closed by server", "reset by peer", "connection lost", "broken pipe"), "If it speaks TLS, write rediss://"),
    (("is loading",), "It has just been started: try again in a moment"),
    (("max number of clients",), "Raise its maxclients, or run fewer workers"),
    (("name or service", "nodename nor servname", "name resolution", "no address"), "Check the name of the host"),
    (("no such file",), "Is it running, with its socket there?"),
    (("unknown command 'sentinel'",), "There is no sentinel: write the address as redis://"),
    (("connect", "timeout"), "Is it running there?"),
)  # fmt: skip
_NO_NODE: Final = "Redis Cluster cannot be connected. Please provide at least one reachable node: "


def passes(error: Exception) -> bool:
    """Whether it is worth waiting: the server is away, or can't for the moment."""
    if isinstance(error, _FINAL):
        return False
    if isinstance(error, _PASSING):
        return True
    if isinstance(error, refused.ClusterError) and _SENT_ROUND in str(error):
        return True
    if isinstance(error, refused.RedisClusterException):
        return any(words in str(error) for words in _CLUSTER_WORDS)
    return isinstance(error, refused.ResponseError) and str(error).startswith(_PASSING_WORDS)


def reason(error: BaseException) -> str:
    """A refusal in one line."""
    if isinstance(error, aiosentinel.MasterNotFoundError):
        unreached = " : " in str(error)
        return f"its sentinels {'can not be reached' if unreached else 'know no primary of that name that is up'}"
    text = str(error).strip() or str(error.__cause__ or "").strip() or type(error).__name__
    return text.splitlines()[0].removeprefix(_NO_NODE).rstrip(".?")


def explained(place: str, error: BaseException) -> str:
    """What happened, to what, and what to do."""
    words = f"{error} {error.__cause__ or ''}".lower()
    advice = next((f". {advice}" for marks, advice in _ADVICE if any(mark in words for mark in marks)), "")
    if place.startswith("rediss") and "timeout" in words:  # a server without TLS waits for more, without a word
        advice = ". Is it running there, and does it speak TLS? If not, write redis:// without the second s"
    return f"{place}: {reason(error)}{advice}"


def problems(about: dict[str, Any], *, cluster: bool) -> list[str]:
    """What makes a server unfit, from its INFO."""
    found = []
    version = str(about.get("redis_version", "0"))
    if _numbers(version) < OLDEST:
        found.append(f"it is Redis {version}; Weft needs {'.'.join(map(str, OLDEST))} or newer, or Valkey")
    if about.get("role") == "slave":
        found.append("it is a read-only replica; give the address of its primary, or redis+sentinel://")
    mode = about.get("redis_mode") or about.get("server_mode")  # the latter is Valkey's word
    if mode == "sentinel":
        found.append("it is a sentinel; write the address as redis+sentinel://HOST:PORT/SERVICE")
    if mode == "cluster" and not cluster:
        found.append("it is a node of a cluster; write the address as redis+cluster://")
    policy = str(about.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys") and int(about.get("maxmemory", 0)):
        found.append(f"it drops keys when memory is short (maxmemory-policy {policy}); set it to noeviction")
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split(".")[:2])
