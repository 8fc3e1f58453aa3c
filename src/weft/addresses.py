"""Looking up the addresses of names, many at once.

Each name that is being looked up has a thread of its own, as the system's function for it blocks: the event loop's own
way has a few threads for all, and names whose servers don't answer would hold up the others. Such a thread can't be
ended; so who asks for a name again waits for the same one, and nobody waits for them when the process ends.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from concurrent.futures import Future
from typing import Final

_MOST_AT_ONCE: Final = 500

_under_way: Final[dict[str, Future[list[str]]]] = {}


async def addresses_of(name: str) -> list[str]:
    """In the order in which they are to be tried; an address has itself.

    :raises OSError: it has none (:class:`socket.gaierror`).
    :raises UnicodeError: nobody can have such a name.
    """
    try:
        return [str(ipaddress.ip_address(name))]
    except ValueError:
        pass
    found = _under_way.get(name)
    if found is None:
        if len(_under_way) >= _MOST_AT_ONCE:
            raise socket.gaierror(socket.EAI_AGAIN, "too many others are being looked up")
        found = _under_way[name] = Future()
        found.set_running_or_notify_cancel()  # from here on nobody who stops waiting can cancel it
        threading.Thread(target=_look_up, args=(name, found), name=f"weft name {name}", daemon=True).start()
    return await asyncio.wrap_future(found)


def _look_up(name: str, found: Future[list[str]]) -> None:
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in answers))
    except Exception as error:
        del _under_way[name]
        found.set_exception(error)
    else:
        del _under_way[name]
        found.set_result(addresses)
