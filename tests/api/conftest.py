"""A folder with a crawl, and dashboards over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.running import Dashboard, run_dashboard
from tests.cli.conftest import make_crawl


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the crawl ``shop``."""
    monkeypatch.chdir(tmp_path)
    make_crawl()
    return tmp_path


@pytest.fixture
def dashboard(folder: Path) -> Iterator[Dashboard]:
    """A dashboard without users."""
    with run_dashboard(folder) as running:
        yield running
