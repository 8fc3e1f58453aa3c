"""The coordinator on Redis and Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from uttu.clients.redis.address import make_clients
from uttu.cluster.redis.coordinator import RedisCoordinator
from uttu.testing.contracts.coordinator import SESSION, OpenCluster, RecipeContract, TreeContract


@pytest.fixture(params=["redis_url", "valkey_url", "redis_cluster_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def cluster(url: str) -> AsyncIterator[OpenCluster]:
    opened: list[RedisCoordinator] = []

    async def open_another() -> RedisCoordinator:
        opened.append(await RedisCoordinator.open(url, SESSION))
        return opened[-1]

    yield open_another
    for each in opened:
        await each.close()
    await clear(url)


async def clear(url: str) -> None:
    """Remove all keys of the coordinator."""
    client, _ = make_clients(url)
    async for key in client.scan_iter("uttu:{cluster}:*"):
        await client.delete(key)
    await client.aclose()


class TestTree(TreeContract):
    pass


class TestRecipes(RecipeContract):
    pass
