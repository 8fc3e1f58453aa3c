"""How commands end when something goes wrong."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import HOST, SPIDER
from uttu.testing.site import SiteProcess

FULL = Path("/dev/full")


@pytest.mark.parametrize("words", [("status", "--json"), ("--help",)])
def test_a_full_disk_behind_standard_output_is_told(tmp_path: Path, words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "uttu", *words]
    with FULL.open("w") as full:
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "uttu: Cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("to", ["/dev/full", "&-"])
def test_the_summary_of_a_crawl_can_not_be_written(tmp_path: Path, site: SiteProcess, workers: str, to: str) -> None:
    (tmp_path / "shop.py").write_text(SPIDER.replace(HOST, site.url).replace(', domains=["shop.example"]', ""))
    done = shell(tmp_path, f"crawl shop.py --json --workers {workers} >{to}")
    assert done.returncode == 1
    assert done.stderr.startswith("uttu: Cannot write to standard output: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code"), [("status >&-", 0), ("status --json >&-", 1), ("status 2>&-", 0), ("--help >&-", 1)]
)
def test_streams_that_are_closed(tmp_path: Path, words: str, code: int) -> None:
    done = shell(tmp_path, words)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def shell(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.quote(sys.executable)} -m uttu {words}"
    return subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
