"""The files and names in docs/explanation/architecture.md exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT, prose

SOURCE = ROOT / "src" / "uttu"
TEXT = prose(ROOT / "docs" / "explanation" / "architecture.md")
HOPS = re.findall(r"^\| `([^`]+)` \| `(\w+)` \|", TEXT, re.MULTILINE)
# Paths in running text; a name in brackets after a path must be in that file.
PATHS = re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`(?: \(`(\w+)`\)|,\n?\s?`(\w+)`)?", TEXT)


def defines(path: str, name: str) -> bool:
    text = (SOURCE / path).read_text(encoding="utf-8")
    return (
        re.search(rf"^(?:(?:async )?def|class|local function|function)\s+{name}\b|^{name} =", text, re.MULTILINE)
        is not None
    )


def test_there_are_four_walks() -> None:
    assert len(re.findall(r"^\| file \|", TEXT, re.MULTILINE)) == 4
    assert len(HOPS) > 60


@pytest.mark.parametrize(("path", "name"), HOPS)
def test_a_hop_exists(path: str, name: str) -> None:
    assert defines(path, name)


@pytest.mark.parametrize("path", sorted({path for path, *_ in PATHS if not path.startswith("src/")}))
def test_a_path_exists(path: str) -> None:
    assert (SOURCE / path).exists()


@pytest.mark.parametrize(("path", "name"), [(path, one or other) for path, one, other in PATHS if one or other])
def test_a_name_beside_a_path_exists(path: str, name: str) -> None:
    assert defines(path, name)
