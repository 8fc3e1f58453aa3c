"""kill -9 in the middle of a crawl that runs as a job; many rounds of it are in the nemesis."""

from __future__ import annotations

import pytest

from tests.harness.nemesis.crawl_jobs import Kind, Plan, run


@pytest.mark.parametrize("kind", ["slice", "pool", "worker", "broker"])
def test_on_redis(kind: Kind) -> None:
    """The visibility timeout is shorter than the crawl."""
    assert run(Plan(kind=kind, kills=1)) == []


def test_on_rabbitmq() -> None:
    assert run(Plan(kind="broker", broker="rabbitmq", kills=1)) == []
