"""What import-linter can't check: that its rules name every technology, and what is imported at start."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "uttu"
# Modules of a role that are not technologies: contracts, and parts that technologies share.
SHARED = {
    "bus": {"backend", "base", "topics"},
    "fetch": {
        "base",
        "cookies",
        "decoding",
        "exchange",
        "http1",
        "http1_parser",
        "http2",
        "http2_frames",
        "pool",
        "proxies",
        "resolver",
        "tls",
    },
    "frontier": {"base", "catalog", "transfer"},
    "sinks": {"base", "files"},
}


def test_every_technology_is_in_the_rule_that_keeps_them_apart() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    listed = set(parser["importlinter:contract:roles"]["layers"].replace("|", " ").split())
    found = {
        f"uttu.{role}.{path.stem}"
        for role, shared in SHARED.items()
        for path in (SOURCE / role).iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem not in shared | {"__init__"}
    }
    assert found <= listed


def test_a_crawl_starts_without_what_few_crawls_need() -> None:
    """XPath, sitemaps and rare encodings are imported when a page needs them: each start would pay for them."""
    code = "import sys, uttu.runtime.crawl, uttu.cli.foreground, uttu.fetch.http; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "uttu.engine.page_processor" in imported
    assert {"lxml.etree", "lxml.html", "_codecs_cn", "_codecs_hk", "_codecs_jp"}.isdisjoint(imported)
