"""The list of commands, and how fast it comes."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.conftest import Uttu
from uttu.cli.app import app_for

COMMANDS = [
    "new",
    "spiders",
    "crawl",
    "worker",
    "status",
    "top",
    "why",
    "items",
    "history",
    "events",
    "workers",
    "keys",
    "settings",
    "push",
    "pause",
    "resume",
    "stop",
    "drain",
    "rate",
    "retry",
    "export",
    "move",
    "shell",
    "fetch",
    "demo",
    "dashboard",
    "open",
    "up",
    "down",
    "bus",
    "jobs",
    "schedule",
]
HEAVY = "asyncio, celery, msgspec, rich, uvloop, pyreqwest, selectolax, sqlite3, uttu.runtime.factory, uttu.spider"


def test_help_lists_all_commands_in_order(uttu: Uttu) -> None:
    told = uttu("--help")
    assert told.code == 0
    lines = told.out.partition("Commands:")[2].split("\n")
    assert [line.split()[0] for line in lines if line.strip()] == COMMANDS


def test_every_command_explains_itself(uttu: Uttu) -> None:
    for command in COMMANDS:
        told = uttu(command, "--help")
        assert told.code == 0
        assert told.out.startswith(f"Usage: uttu {command} ")


def test_only_the_command_that_is_asked_for_is_made() -> None:
    assert [command.name for command in app_for("crawl").registered_commands] == ["crawl"]
    assert not app_for("crawl").registered_groups
    assert [group.name for group in app_for("jobs").registered_groups] == ["jobs"]
    for asked in ("", "--help", "spin"):
        assert len(app_for(asked).registered_commands) + len(app_for(asked).registered_groups) == len(COMMANDS)


def test_commands_import_what_they_need_when_they_run() -> None:
    code = (
        "import sys, uttu; known = set(sys.modules); import uttu.cli.app\n"
        f"print(*({{*'{HEAVY}'.split(', ')}} & (sys.modules.keys() - known)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_an_unknown_command_is_wrong_usage(uttu: Uttu) -> None:
    assert uttu("spin").code == 2
    assert uttu("status", "--nope").code == 2
