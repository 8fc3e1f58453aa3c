"""Empty pages say what to type: these commands exist."""

from __future__ import annotations

import re
import sys
from importlib import resources

import pytest

from uttu import cli

_COMMAND = re.compile(r"""(?:"|<code>)uttu ((?:[a-z]+ ?)+)""")


def find_commands() -> set[str]:
    """The commands in the templates, without their arguments."""
    folder = resources.files("uttu.api.pages") / "templates"
    texts = [file.read_text() for file in folder.iterdir() if file.name.endswith(".html")]
    words = {tuple(found.split()) for text in texts for found in _COMMAND.findall(text)}
    groups = {"bus": 2, "jobs": 2, "schedule": 2, "dashboard": 3}
    return {" ".join(each[: groups.get(each[0], 1)]) for each in words}


def test_there_are_commands() -> None:
    assert {"crawl", "bus subscribe", "jobs call", "schedule add", "dashboard user add"} <= find_commands()


@pytest.mark.parametrize("command", sorted(find_commands()))
def test_command_exists(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["uttu", *command.split(), "--help"])
    assert cli.run() == 0, capsys.readouterr().err
