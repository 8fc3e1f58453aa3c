"""The documentation uses plain words: none of the phrases that readers stumble over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, pages, prose

PHRASES = re.compile(
    r"\btold\b|\bcan(?:'t|not)? be had\b|\bso many\b|\bso long\b|\bis none\b|\bof (?:its|their|one's|our) own\b"
    r"|\bdoes no harm\b|\bwhat there is\b|\bfor ever\b",
    re.IGNORECASE,
)
# Tables of measured results name what handlers did.
RESULTS = re.compile(r"^\| [\w-]+ .*\bMB \|.*$", re.MULTILINE)


@pytest.mark.parametrize("page", [*pages(), ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_plain_words(page: Path) -> None:
    text = " ".join(RESULTS.sub("", prose(page)).split())
    assert [text[max(0, found.start() - 40) : found.end() + 40] for found in PHRASES.finditer(text)] == []
