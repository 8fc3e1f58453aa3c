"""The coordinator of one machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster.opening import opening
from uttu.cluster.local import LocalCoordinator
from uttu.testing.contracts.coordinator import SESSION, OpenCluster, TreeContract
from uttu.testing.contracts.recipes import RecipeContract


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[OpenCluster]:
    async with opening(lambda: LocalCoordinator.open(tmp_path, SESSION)) as open_another:
        yield open_another


class TestTree(TreeContract):
    pass


class TestRecipes(RecipeContract):
    pass
