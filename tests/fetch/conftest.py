from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvloop

from tests.fetch.certificates import Authority
from tests.fetch.servers import Handler, Server, forward, serving
from uttu.fetch.http import HttpFetcher

Serve = Callable[..., Awaitable[Server]]
MakeFetcher = Callable[..., HttpFetcher]


# How a request goes: without TLS, with it, and either through a proxy.
WAYS = ("plain", "tls", "plain by proxy", "tls by proxy")


@pytest.fixture(params=["plain", "tls"])
def way(request: pytest.FixtureRequest) -> str:
    """How requests go; a test or module that is about one of them says so."""
    return str(request.param)


@pytest.fixture
async def serve(way: str, authority: Authority) -> AsyncIterator[Serve]:
    """Starts servers that stop with the test; with TLS where that is the way, unless they bring their own."""
    async with AsyncExitStack() as stack:

        async def start(handler: Handler, tls: ssl.SSLContext | None = None) -> Server:
            if tls is None and way.startswith("tls"):
                tls = authority.server()
            return await stack.enter_async_context(serving(handler, tls))

        yield start


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that crawls run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def make(way: str, authority: Authority) -> AsyncIterator[MakeFetcher]:
    """Makes fetchers that close with the test, and trust the servers of :func:`serve`."""
    made: list[HttpFetcher] = []
    async with AsyncExitStack() as stack:
        common: dict[str, Any] = {"user_agent": "Test/1"}
        if way.startswith("tls"):
            common["ca_file"] = authority.file
        if way.endswith("proxy"):
            proxy = await stack.enter_async_context(serving(forward))
            common["proxy"] = f"http://{proxy.host}"

        def make(**options: Any) -> HttpFetcher:
            made.append(HttpFetcher(**{**common, **options}))
            return made[-1]

        yield make
        for fetcher in made:
            await fetcher.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority that no one trusts but those who are given its file."""
    return Authority(tmp_path_factory.mktemp("authority"))
