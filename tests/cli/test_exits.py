"""How commands end when something goes wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")


@pytest.mark.parametrize("words", [("status", "--json"), ("--help",)])
def test_a_full_disk_behind_standard_output_is_told(tmp_path: Path, words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "weft", *words]
    with FULL.open("w") as full:
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "weft: what there is to say can't be written: No space left on device\n"
