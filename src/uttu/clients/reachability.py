"""Find out quickly whether the server of a URL is away, without its protocol.

Drivers wait for a server that comes back: confluent-kafka for seconds, whatever the reason. But a server that was
killed refuses connections at once. So a program that many people look at tries to connect, beside the driver.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

_PORTS: Final = {
    "amqp": 5672,
    "amqps": 5671,
    "kafka": 9092,
    "kafkas": 9092,
    "redis": 6379,
    "rediss": 6379,
    "redis+cluster": 6379,
    "rediss+cluster": 6379,
    "redis+sentinel": 26379,
}
_CONNECT_SECONDS: Final = 0.5
_END: Final = re.compile(r"[/?#]")
_match_place: Final = re.compile(r"\[?(?P<host>[^\[\]]*?)\]?(?::(?P<port>\d{1,5}))?").fullmatch


def find_places(url: str) -> list[tuple[str, int]]:
    """The hosts and ports in the URL of a server; an empty list for a file, and for schemes that are not known."""
    scheme, _, rest = url.partition("://")
    port = _PORTS.get(scheme.lower())
    if port is None:
        return []
    # As the parsers of these URLs do: a login for Redis may contain any character, and so ends at the last "@".
    bare = rest.rpartition("@")[2] if scheme.lower().startswith("redis") else _END.split(rest)[0].rpartition("@")[2]
    matches = [_match_place(text) for text in _END.split(bare)[0].split(",")]
    return [(match["host"] or "localhost", int(match["port"] or port)) for match in matches if match]


async def find_refusal(url: str) -> str:
    """Why no server of a URL accepts a connection. Empty if one does, or if none says anything within half a second."""
    places = find_places(url)
    answers = await asyncio.gather(*(_try_place(host, port) for host, port in places))
    return answers[0] if answers and all(answers) else ""


async def _try_place(host: str, port: int) -> str:
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return f"{host}:{port}: Connection refused"
    except (OSError, OverflowError, TimeoutError):
        # Its name may not be known for a moment, or the network is slow: the driver knows better.
        return ""
    writer.transport.abort()
    return ""
