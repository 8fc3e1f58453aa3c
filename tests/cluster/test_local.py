"""The coordinator of one machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from uttu.cluster.local import LocalCoordinator
from uttu.testing.contracts.coordinator import SESSION, OpenCluster, RecipeContract, TreeContract


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[OpenCluster]:
    opened: list[LocalCoordinator] = []

    async def open_another() -> LocalCoordinator:
        opened.append(await LocalCoordinator.open(tmp_path, SESSION))
        return opened[-1]

    yield open_another
    for each in opened:
        await each.close()


class TestTree(TreeContract):
    pass


class TestRecipes(RecipeContract):
    pass
