"""Serve hostile kinds, each at its own address, all on one port."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from uttu.testing.site.hostile.certificates import Authority
from uttu.testing.site.hostile.model import Kind, Served, Wire
from uttu.testing.site.log import Log
from uttu.testing.site.message import NOT_FOUND, Answer, Incoming, Script
from uttu.testing.site.model import Layout, Site
from uttu.testing.site.protocol import Connection, Hub
from uttu.testing.site.server import listen

BASE: Final = "127.79.0.1"
_READ_LIMIT: Final = 1 << 20


class Hosts:
    """Answers each request as the kind of its host does."""

    def __init__(self, layout: Layout, kinds: Sequence[Kind]) -> None:
        self.layout = layout
        self._kinds = kinds

    def reply(self, incoming: Incoming) -> Answer | Script:
        return self._kinds[incoming.host].answer(incoming) or NOT_FOUND


@asynccontextmanager
async def serve(kinds: Sequence[Kind], folder: Path, log: Path | None = None) -> AsyncIterator[dict[str, str]]:
    """Serve ``kinds`` on the running loop until the block ends. Yields the URL of each kind by name.

    All bodies are made before the hosts listen.

    :param folder: certificates are written here; ``authority.pem`` is the one to trust.
    :raises OSError: no port is free on all addresses.
    """
    for kind in kinds:
        if isinstance(kind.reply, Served):
            kind.reply.prepare()
    site = Site(hosts=len(kinds), pages=1, base=BASE)
    sockets = listen(site)
    port: int = sockets[0].getsockname()[1]
    authority = Authority(folder)
    loop = asyncio.get_running_loop()
    book = Log(log, keep=False)
    hub = Hub(Hosts(Layout.at(site, port), kinds), book)
    tasks: set[asyncio.Task[None]] = set()
    servers = []
    for number, (kind, address, sock) in enumerate(zip(kinds, site.addresses, sockets, strict=True)):
        context = authority.context(kind.certificate, address, kind.alpn)
        if kind.talk is None:
            servers.append(await loop.create_server(partial(Connection, hub, number, address), sock=sock, ssl=context))
        else:
            met = partial(_meet, kind, tasks)
            servers.append(await asyncio.start_server(met, sock=sock, ssl=context, limit=_READ_LIMIT))
    try:
        yield {kind.name: url_of(kind, address, port) for kind, address in zip(kinds, site.addresses, strict=True)}
    finally:
        for server in servers:
            server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await hub.close()
        book.close()


def url_of(kind: Kind, address: str, port: int) -> str:
    return f"{'https' if kind.certificate else 'http'}://{address}:{port}{kind.path}"


async def _meet(
    kind: Kind, tasks: set[asyncio.Task[None]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    task = asyncio.current_task()
    assert task is not None
    assert kind.talk is not None
    tasks.add(task)
    wire = Wire(reader, writer)
    try:
        with contextlib.suppress(OSError, EOFError, ssl.SSLError, asyncio.LimitOverrunError):
            await kind.talk(wire)
        await wire.close()
    finally:
        tasks.discard(task)
