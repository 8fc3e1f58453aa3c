"""Looking up the addresses of names, many at once.

The event loop's own way has two threads for it: a few names whose servers don't answer would hold up all others.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

_MOST_AT_ONCE: Final = 64


async def addresses_of(name: str) -> list[str]:
    """In the order in which they are to be tried; an address has itself.

    :raises OSError: it has none (:class:`socket.gaierror`).
    :raises UnicodeError: nobody can have such a name.
    """
    try:
        return [str(ipaddress.ip_address(name))]
    except ValueError:
        found = await asyncio.get_running_loop().run_in_executor(_threads(), _look_up, name)
    return list(dict.fromkeys(found))


def _look_up(name: str) -> list[str]:
    return [str(address[0]) for *_, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix="weft-names")
