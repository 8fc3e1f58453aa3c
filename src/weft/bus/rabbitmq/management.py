"""The management API of RabbitMQ: what the protocol itself does not tell.

Its numbers are some seconds old (``collect_statistics_interval``).
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPException
from typing import Final
from urllib.parse import quote

import msgspec

from weft.bus.rabbitmq.address import Address
from weft.drivers.urls import masked
from weft.errors import BusRefused

_SECONDS: Final = 5.0
_COLUMNS: Final = "name,arguments,messages_unacknowledged"


class Queue(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, object] = {}
    messages_unacknowledged: int = 0


class Management:
    """``node`` is asked for the one that is connected: without an option, its API is tried."""

    def __init__(self, address: Address, node: Callable[[], tuple[str, int]]) -> None:
        self._address = address
        self._node = node
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=address.tls())
        )

    async def queues(self, name: str = "") -> list[Queue]:
        """All queues of the vhost, or the one of this name.

        :raises BusRefused: the API can't be had; says what is needed.
        """
        base, user, password = self._address.management_url(self._node())
        path = f"/api/queues/{quote(self._address.vhost, safe='')}" + (f"/{quote(name, safe='')}" if name else "")
        login = b64encode(f"{user}:{password}".encode()).decode()
        request = urllib.request.Request(
            f"{base}{path}?columns={_COLUMNS}", headers={"Authorization": f"Basic {login}"}
        )
        try:
            body = await asyncio.to_thread(self._read, request)
            return [msgspec.json.decode(body, type=Queue)] if name else msgspec.json.decode(body, type=list[Queue])
        except (OSError, HTTPException, ValueError, msgspec.DecodeError) as error:
            raise BusRefused(
                f"RabbitMQ lists its queues only by its management API, and {masked(base)} can't be used: {error}; "
                "enable the plugin rabbitmq_management, or say where it is: ?management=http://USER:PASSWORD@HOST:PORT"
            ) from error

    def _read(self, request: urllib.request.Request) -> bytes:
        with self._opener.open(request, timeout=_SECONDS) as response:
            content: bytes = response.read()
        return content
