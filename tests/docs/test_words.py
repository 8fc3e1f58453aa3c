"""The source and the documentation use plain words: none of the phrases that readers stumble over."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, pages, prose

PHRASES = re.compile(
    r"\btold\b|\bcan(?:'t|not)? be had\b|\bso many\b|\bso long\b|\bis none\b|\bof (?:its|their|one's|our) own\b"
    r"|\bdoes no harm\b|\bwhat there is\b|\bfor ever\b|\bagain and again\b|\bit is so\b|\bback in line\b",
    re.IGNORECASE,
)
# Tables of measured results name what handlers did.
RESULTS = re.compile(r"^\| [\w-]+ .*\bMB \|.*$", re.MULTILINE)


def find_phrases(text: str) -> list[str]:
    text = " ".join(text.replace("is None", "").split())
    return [text[max(0, found.start() - 40) : found.end() + 40] for found in PHRASES.finditer(text)]


@pytest.mark.parametrize("page", [*pages(), ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_plain_words(page: Path) -> None:
    assert find_phrases(RESULTS.sub("", prose(page))) == []


def test_plain_words_in_comments_docstrings_and_messages() -> None:
    found = []
    for file in sorted((ROOT / "src").rglob("*.py")):
        with io.StringIO(file.read_text(encoding="utf-8")) as source:
            texts = [
                token.string for token in tokenize.generate_tokens(source.readline) if not token.string.isidentifier()
            ]
        found += [f"{file.relative_to(ROOT)}: {phrase}" for text in texts for phrase in find_phrases(text)]
    for file in sorted((ROOT / "src").rglob("*.lua")):
        found += [f"{file.relative_to(ROOT)}: {phrase}" for phrase in find_phrases(file.read_text(encoding="utf-8"))]
    assert found == []


def test_names_of_the_source_are_not_of_its_former_dialect() -> None:
    words = {"told", "reins", "shelves", "onlooker", "errand", "crew", "depot"}
    found = []
    for file in sorted((ROOT / "src").rglob("*.py")):
        with io.StringIO(file.read_text(encoding="utf-8")) as source:
            names = {token.string for token in tokenize.generate_tokens(source.readline) if token.type == tokenize.NAME}
        found += [f"{file.relative_to(ROOT)}: {name}" for name in sorted(names & words)]
    assert found == []
