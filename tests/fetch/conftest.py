from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvloop

from tests.fetch.certificates import Authority
from tests.fetch.servers import Handler, Server, serving
from weft.fetch.http import HttpFetcher

Serve = Callable[..., Awaitable[Server]]
MakeFetcher = Callable[..., HttpFetcher]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts servers that stop with the test."""
    async with AsyncExitStack() as stack:

        async def start(handler: Handler, tls: ssl.SSLContext | None = None) -> Server:
            return await stack.enter_async_context(serving(handler, tls))

        yield start


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that crawls run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(params=["plain", "library"])
def way(request: pytest.FixtureRequest) -> str:
    """How a GET without TLS goes: by connections of our own, or by the HTTP library, as everything else does."""
    return str(request.param)


@pytest.fixture
async def make(way: str) -> AsyncIterator[MakeFetcher]:
    """Makes fetchers that close with the test."""
    made: list[HttpFetcher] = []

    def make(**options: Any) -> HttpFetcher:
        made.append(HttpFetcher(**{"user_agent": "Test/1", **options}))
        if way == "library":
            made[-1]._plain = None
        return made[-1]

    yield make
    for fetcher in made:
        await fetcher.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority that no one trusts but those who are given its file."""
    return Authority(tmp_path_factory.mktemp("authority"))
