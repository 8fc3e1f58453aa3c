"""The public names, nothing else."""

from __future__ import annotations

import subprocess
import sys

import weft


def test_the_public_names() -> None:
    assert weft.__all__ == ["Failure", "Page", "Request", "Response", "Selection", "Spider", "WeftError", "__version__"]
    assert all(getattr(weft, name) is not None for name in weft.__all__)


def test_the_command_line_imports_little() -> None:
    """``weft --help`` answers at once because it loads neither the engine nor the parsers."""
    heavy = "{'weft.engine', 'weft.spider', 'selectolax', 'pyreqwest', 'lxml', 'uvloop', 'rich'}"
    code = f"import sys, weft.cli.app; print(sorted(set(sys.modules) & {heavy}))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
