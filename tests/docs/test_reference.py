"""The reference is complete, and says nothing that is not there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer.main

import uttu
from tests.docs.blocks import ROOT, prose
from uttu import Failure, Page, Request, Response, Selection, Spider, errors
from uttu.cli.app import app_for
from uttu.errors import BROKEN, CONFIG, FAILED, STORE, USAGE
from uttu.model import Counts
from uttu.policy.conditions import collect_metrics
from uttu.runtime.registry import FILE_SUFFIXES
from uttu.settings import Settings
from uttu.testing.crawls import crawl
from uttu.testing.site import Site, serve


def _command(name: str) -> Any:
    """A command with its options: the group has only the options of the command that it was made for."""
    group: Any = typer.main.get_command(app_for(name))
    return group.commands[name]


def _list_commands(name: str, command: Any) -> dict[str, Any]:
    """A command and, if it is a group, all commands below it, by their full names."""
    found = {name: command}
    for inner, each in getattr(command, "commands", {}).items():
        found |= _list_commands(f"{name} {inner}", each)
    return found


GROUP: Any = typer.main.get_command(app_for())


COMMANDS: dict[str, Any] = {
    full: each for name in GROUP.commands for full, each in _list_commands(name, _command(name)).items()
}


def read(name: str) -> str:
    return prose(ROOT / "docs" / name)


def section(text: str, heading: str) -> str:
    """What stands between a heading and the next one of its level."""
    level = heading.partition(" ")[0]
    found = re.search(rf"^{re.escape(heading)}$\n(.*?)(?=^{level} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"there is no heading {heading!r}"
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of all tables, by their first cell."""
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row[1:] for row in cells}


def code(text: str) -> set[str]:
    """The names that stand in back quotes, without brackets and what is in them."""
    return {re.split(r"[(\[=]", each)[0].strip("@") for each in re.findall(r"`([^`]+)`", text)}


def test_every_setting_is_there_with_its_default() -> None:
    shown = {name.strip("`"): row[0] for name, row in rows(read("reference/settings.md")).items() if name[0] == "`"}
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    assert shown.keys() == fields.keys()
    for name, text in shown.items():
        value = msgspec.to_builtins(getattr(Settings(), name))
        expected = msgspec.json.encode(value).decode().replace(uttu.__version__, "<version>")
        assert text == f"`{expected}`", name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_with_its_options(name: str) -> None:
    text = section(read("reference/command-line.md"), f"## uttu {name}")
    shown = {option for row in rows(text) for option in re.findall(r"(?<![\w-])--?[a-zA-Z][a-z-]*", row)}
    params = [each for each in COMMANDS[name].params if each.param_type_name == "option" and not each.hidden]
    assert shown == {option for each in params for option in each.opts if option != "--help"}
    usage = text.strip().splitlines()[0]
    for argument in (each for each in COMMANDS[name].params if each.param_type_name == "argument"):
        assert argument.metavar.strip("[]") in usage


def test_there_are_no_other_commands() -> None:
    headings = re.findall(r"^## uttu ([\w ]+)$", read("reference/command-line.md"), re.MULTILINE)
    assert headings == list(COMMANDS)


def test_every_exit_code_is_there() -> None:
    shown = rows(section(read("reference/command-line.md"), "## Exit codes"))
    known = {0, FAILED, USAGE, CONFIG, STORE, BROKEN, 130, 143}
    assert {int(code) for cell in shown for code in re.findall(r"\d+", cell)} == known


@pytest.mark.parametrize("kind", [Spider, Page, Selection, Failure, Request, Response], ids=lambda kind: kind.__name__)
def test_every_public_name_is_there(kind: type) -> None:
    text = section(read("reference/spider.md"), f"## {kind.__name__}")
    names = {name for name in dir(kind) if not name.startswith("_")}
    if kind is Spider:
        names |= {name for name in vars(Spider("x")) if not name.startswith("_")}
        text = text.replace("`@spider.", "`")
    if kind is Page:
        names |= {"response", "request", "url"}
    shown = {name.removeprefix(f"{kind.__name__}.") for name in code(text)}
    assert names - shown == set()


def test_all_that_is_exported_is_there() -> None:
    text = read("reference/spider.md")
    for name in uttu.__all__:
        if not name.startswith("__"):
            section(text, f"## {name}")


def test_every_ending_of_an_output_is_there() -> None:
    for page in ("how-to/outputs.md", "reference/item-outputs.md"):
        assert {*FILE_SUFFIXES, "-"} <= code(read(page)), page


def test_every_kind_of_failure_is_there() -> None:
    shown = code("\n".join(rows(section(read("how-to/errors.md"), "## Kinds of failure"))))
    kinds = {
        each.kind for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.FetchError)
    }
    kinds |= {"http", "redirect", "robots", "scope", "handler", "middleware", "spider", "lost", "internal"}
    assert kinds == shown


def test_every_number_for_fail_on_is_there() -> None:
    text = section(read("how-to/errors.md"), "## Exit with an error when too much goes wrong")
    assert collect_metrics(Counts(), {}).keys() <= code(text)


def test_every_file_is_there(tmp_path: Path) -> None:
    async def run() -> None:
        spider = Spider("NAME", private=True, cache=True)
        spider.page(lambda page: None)
        async with serve(Site(pages=1)) as site:
            spider.start_urls = (site.url + "p/0",)
            await crawl(spider, tmp_path)

    asyncio.run(run())
    shown = code(read("reference/files.md"))
    made = {path.relative_to(tmp_path) for path in [*tmp_path.glob("*"), *tmp_path.glob("crawls/*")]}
    assert {path.name for path in made} >= {"NAME.db", "cache.db"}
    for path in made:
        folder = "/" if (tmp_path / path).is_dir() else ""
        names = {path.name + folder, f".uttu/{path}{folder}"}
        assert names & shown or path.name.startswith("cache.db-"), path
