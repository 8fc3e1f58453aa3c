"""What docs/coverage.md names as proof is there."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.docs.blocks import ROOT, prose

_code = re.compile(r"`([^`]+)`")
_is_path = re.compile(r"(?:tests|bench|src|deploy|docs|tools)/").match
_is_ours = re.compile(r"(?:frontier|bus)/").match
_is_module = re.compile(r"uttu\.testing\.\w+").fullmatch
_is_script = re.compile(r"python -m (bench\.\w+)(?: (\w+))?").fullmatch

ROWS = {
    line.split(" | ")[0].strip("| "): _code.findall(line)
    for line in prose(ROOT / "docs" / "coverage.md").splitlines()
    if line.startswith("|")
}


def missing(row: list[str]) -> list[str]:
    """What of the names in a row leads nowhere. A test file alone is in the folder of the one before it."""
    lost, folder = [], "tests"
    for name in row:
        path, _, test = name.partition("::")
        if _is_path(path):
            folder = path.rpartition("/")[0]
        elif re.fullmatch(r"test_[\w*]+\.py", path):
            path = f"{folder}/{path}"
        elif _is_ours(path):
            path = f"src/uttu/{path}"
        else:
            if not _is_known(name):
                lost.append(name)
            continue
        files = list(ROOT.glob(path.rstrip("/")))
        if not files or (test and f"def {test}(" not in files[0].read_text()):
            lost.append(name)
    return lost


def _is_known(name: str) -> bool:
    """Modules and scripts; whatever is none of these is another test's affair."""
    if _is_module(name):
        return importlib.util.find_spec(name) is not None
    if found := _is_script(name):
        script, command = found.groups()
        path = ROOT / script.replace(".", "/")
        main = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__main__.py"
        return main.exists() and (not command or f'"{command}"' in main.read_text())
    return True


@pytest.mark.parametrize("row", ROWS)
def test_the_proofs_of_a_row_are_there(row: str) -> None:
    assert missing(ROWS[row]) == []


@pytest.mark.parametrize(
    "name",
    [
        "tests/crawl/test_none.py",
        "tests/crawl/test_life.py::test_none",
        "tests/none/",
        "tests/jobs/test_none_*.py",
        "test_none.py",
        "bench/none.py",
        "frontier/none.py",
        "uttu.testing.none",
        "python -m bench.none",
        "python -m bench.frontier none",
    ],
)
def test_what_is_not_there_is_found_missing(name: str) -> None:
    assert missing(["tests/crawl/test_life.py::test_orders", "test_kill.py", name]) == [name]
