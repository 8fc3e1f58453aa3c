"""``uttu demo``: it keeps what it promises, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def demo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "tmp").mkdir()
    (folder / "here").mkdir()
    return subprocess.run(
        [sys.executable, "-m", "uttu", "demo", *words],
        capture_output=True,
        text=True,
        cwd=folder / "here",
        env=os.environ | {"TMPDIR": str(folder / "tmp"), "UTTU_DELAY": "100"},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_it_promises(tmp_path: Path, workers: str) -> None:
    done = demo(tmp_path, "--pages", "300", "--workers", workers, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["rows"] == found["pages"] == 360
    assert found["missing"] == found["double"] == found["forbidden"] == 0
    assert 100 <= found["killed_at"] < 360
    assert found["needlessly"] == 0
    assert found["refetched"] <= found["in_flight"]
    assert found["shortest_gap"] >= found["delay"]


def test_what_it_shows(tmp_path: Path) -> None:
    done = demo(tmp_path, "--pages", "200")
    assert done.returncode == 0, done.stdout + done.stderr
    for text in (
        "spider = Spider(",
        "$ uttu crawl demo_spider.py",
        "kill -9 of 3 processes",
        "cut short",
        "yes  exactly one row for every page: 260 rows, 260 pages",
        "robots: disallowed by the site's robots.txt",
        "http: answered with status 500",
        "redirected to",
        "uttu new NAME",
    ):
        assert text in done.stdout, text
    assert "NO " not in done.stdout
    assert "resuming crawl demo" in done.stderr
    assert list((tmp_path / "here").iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_wrong_usage(tmp_path: Path) -> None:
    assert demo(tmp_path, "--pages", "1").returncode == 2
