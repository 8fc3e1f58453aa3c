"""What the driver lets through, mended at the edge. Clients stand in for it: the moments are too short to be had."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from uttu.clients.redis.address import RedisClient
from uttu.frontier.redis.connection import StoreConnection


class Client311:
    """Drops a cancel that comes together with the answer, as ``asyncio.wait_for`` does in Python 3.11."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def execute_command(self, *words: str) -> Any:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return b"the answer"


class LosingClient:
    """Its first connection is lost before anything was said on it; uvloop's words."""

    def __init__(self, words: str) -> None:
        self._words = words
        self.asked = 0

    async def execute_command(self, *words: str) -> Any:
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError(self._words)
        return b"the answer"


async def test_a_cancel_is_never_lost() -> None:
    client = Client311()
    server = StoreConnection(cast("RedisClient", client), "here")

    async def asking_for_ever() -> None:
        while True:
            await server.command("GET", "key")

    task = asyncio.create_task(asking_for_ever())
    await client.asked.wait()
    task.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_cleanup_after_a_cancel_is_not_cancelled_again() -> None:
    client = LosingClient("unable to perform operation; the handler is closed")
    server = StoreConnection(cast("RedisClient", client), "here")
    answers = []

    async def tidying() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            answers.append(await server.command("GET", "key"))

    task = asyncio.create_task(tidying())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert answers == [b"the answer"]


async def test_connection_lost_at_once_is_opened_again() -> None:
    client = LosingClient("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
    assert await StoreConnection(cast("RedisClient", client), "here").command("GET", "key") == b"the answer"
    assert client.asked == 2


async def test_other_errors_propagate() -> None:
    client = LosingClient("something else")
    with pytest.raises(RuntimeError, match="something else"):
        await StoreConnection(cast("RedisClient", client), "here").command("GET", "key")
