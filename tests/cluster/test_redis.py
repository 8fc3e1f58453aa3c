"""The coordinator on Redis and Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cluster.opening import opening
from uttu.clients.redis.address import make_clients
from uttu.cluster.redis.coordinator import RedisCoordinator
from uttu.testing.contracts.coordinator import SESSION, OpenCluster, TreeContract
from uttu.testing.contracts.recipes import RecipeContract


@pytest.fixture(params=["redis_url", "valkey_url", "redis_cluster_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def cluster(url: str) -> AsyncIterator[OpenCluster]:
    async with opening(lambda: RedisCoordinator.open(url, SESSION)) as open_another:
        yield open_another
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
