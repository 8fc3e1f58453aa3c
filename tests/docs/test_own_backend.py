"""The plug-in of docs/how-to/write-your-own-backend.md, installed as a distribution."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks
from uttu.testing.site import Site, SiteProcess

SPIDER = """
from uttu import Spider
spider = Spider("shop", start="{site}shop/", delay=0, robots=False, private=True, max_pages=3)
@spider.page
def each(page):
    yield {{"url": page.url}}
    yield page.follow("li.next a")
"""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with SiteProcess(Site()) as process:
        yield process.url


def install(folder: Path, name: str, points: str, module: str = "") -> None:
    """Write a distribution into ``folder``: its metadata, and the module ``acme_uttu``."""
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(points)
    if module:
        (folder / "acme_uttu.py").write_text(module)


def uttu(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    home = {"PYTHONPATH": str(folder / "site"), "HOME": str(folder / "home")}
    return subprocess.run(
        [sys.executable, "-m", "uttu", *words],
        cwd=folder,
        env={**os.environ, **home},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def documented() -> tuple[str, str]:
    """The module and the entry points of the page."""
    found = list(blocks(ROOT / "docs/how-to/write-your-own-backend.md"))
    module = next(block.text for block in found if block.kind == "file")
    points = next(block.text for block in found if block.language == "text")
    points = re.sub(r'\[project\.entry-points\."(.+)"\]', r"[\1]", points)
    return module, re.sub(r'"?([.\w]+)"? = "(.+)"', r"\1 = \2", points)


def test_the_page(tmp_path: Path, site: str, documented: tuple[str, str]) -> None:
    module, points = documented
    install(tmp_path / "site", "acme", points, module)
    (tmp_path / "spider.py").write_text(SPIDER.format(site=site))
    done = uttu(tmp_path, "crawl", "spider.py", "-o", "items.txt", "--frontier", "home:crawls")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "items.txt").read_text().splitlines()) == 3
    assert (tmp_path / "home/crawls/crawls/shop.db").exists()
    shown = uttu(tmp_path, "status", "--frontier", "home:crawls")
    assert "shop" in shown.stdout
    (tmp_path / "mine.txt").write_text("mine")
    refused = uttu(tmp_path, "crawl", "spider.py", "-o", "mine.txt", "--frontier", "home:crawls")
    assert (refused.returncode, "--overwrite" in refused.stderr) == (2, True)


def test_errors_name_the_plug_ins(tmp_path: Path, site: str) -> None:
    install(tmp_path / "site", "broken", "[uttu.frontiers]\nhome = nosuch_module:open\n")
    (tmp_path / "spider.py").write_text(SPIDER.format(site=site))
    done = uttu(tmp_path, "status", "--frontier", "home:x")
    assert done.returncode == 3
    assert "the distribution broken 1.2" in done.stderr
    assert "ModuleNotFoundError: No module named 'nosuch_module'" in done.stderr
    done = uttu(tmp_path, "status", "--frontier", "other:x")
    assert done.stderr.startswith("uttu: Unknown frontier 'other:x'. Use one of sqlite:FOLDER, redis://")
    assert done.stderr.endswith(", home:\n")
    install(tmp_path / "site", "second", "[uttu.frontiers]\nhome = nosuch_module:open\n")
    done = uttu(tmp_path, "status", "--frontier", "home:x")
    assert "Two plug-ins provide 'home'" in done.stderr
    done = uttu(tmp_path, "crawl", "spider.py", "-s", "fetcher=nosuch")
    assert "Unknown fetcher 'nosuch'. Use one of http" in done.stderr
