"""What makes a server unfit, as it says itself."""

from __future__ import annotations

import pytest

from uttu.clients.redis.errors import find_problems


@pytest.mark.parametrize("version", ["6.2.0", "7.0.15", "10.0.1", "255.255.255"])
def test_servers_that_are_new_enough(version: str) -> None:
    assert find_problems({"redis_version": version, "role": "master"}, cluster=False) == []
