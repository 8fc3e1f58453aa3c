"""The coordinator on ZooKeeper, alone and in an ensemble of three."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from tests.cluster.opening import opening
from tests.harness.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from uttu.cluster.zookeeper import ZooKeeperCoordinator
from uttu.testing.contracts.coordinator import SESSION, OpenCluster, TreeContract
from uttu.testing.contracts.recipes import RecipeContract

_numbers = count()


@pytest.fixture(scope="module", params=["alone", "ensemble"])
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    with ZooKeeperServer() if request.param == "alone" else ZooKeeperEnsemble() as server:
        yield server.url


@pytest.fixture
async def cluster(server_url: str) -> AsyncIterator[OpenCluster]:
    url = f"{server_url}/test-{next(_numbers)}"
    async with opening(lambda: ZooKeeperCoordinator.open(url, SESSION)) as open_another:
        yield open_another


class TestTree(TreeContract):
    pass


class TestRecipes(RecipeContract):
    pass
