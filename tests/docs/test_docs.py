"""What the documentation says is so: its code runs, its commands exist, its links lead somewhere."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import typer.main

from tests.docs.blocks import (
    KINDS,
    ROOT,
    SERVER,
    SITE,
    Block,
    blocks,
    commands,
    markers,
    missing,
    pages,
    prose,
    typed,
    uttu_words,
)
from uttu import settings
from uttu.api.settings import DashboardSettings
from uttu.cli.app import app_for
from uttu.cli.options import parse_pairs
from uttu.jobs.settings import JobSettings
from uttu.spider.loader import load_spider
from uttu.testing.crawls import crawl
from uttu.testing.site import Site, SiteProcess


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Host and port of the site that the pages speak of."""
    with SiteProcess(Site()) as process:
        yield process.url.removeprefix("http://").rstrip("/")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_the_code(
    page: Path, tmp_path: Path, site: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """All blocks of a page, from top to bottom, in one folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = list(blocks(page))
    assert len([block for block in found if block.kind]) == markers(page), "a test comment is above no block"
    for block in found:
        assert block.kind in {"", *KINDS}, f"{block.where}: no such test: {block.kind}"
        if block.kind and SERVER in block.text:
            url: str = request.getfixturevalue("redis_url")
            block.text = block.text.replace(SERVER, urlsplit(url).netloc)
        try:
            _look(block)
            if block.kind:
                _TESTS[block.kind, block.language](block, tmp_path, site)
        except Exception as error:
            error.add_note(f"in {block.where}")
            raise


def _look(block: Block) -> None:
    """What can be said of a block without running it."""
    match block.language:
        case "python" if block.kind != "replace":
            compile(block.text, block.where, "exec")
        case "console":
            for command in commands(block):
                for words in uttu_words(command.line):
                    _parse(words)
        case "toml":
            table = tomllib.loads(block.text)
            msgspec.convert(table.pop("jobs", {}), JobSettings)
            msgspec.convert(table.pop("dashboard", {}), DashboardSettings)
            settings.load_settings(table, {}, folder=Path("nowhere"), environment={})


def _parse(words: list[str]) -> None:
    """Read a command line as ``uttu`` would, without doing what it says."""
    if not words or words[0] in ("--version", "--help"):
        return
    command, name, rest = _group(), "uttu", words
    while hasattr(command, "commands"):
        if rest[:1] == ["-A"]:  # the only option of a group
            rest = rest[2:]
        if command.invoke_without_command and (not rest or rest[0].startswith("-")):
            break  # a group that does something by itself: uttu dashboard --port 9000
        assert rest, f"{name} needs a command"
        assert rest[0] in command.commands, f"there is no command {name} {rest[0]}"
        command, name, rest = command.commands[rest[0]], f"{name} {rest[0]}", rest[1:]
    if "--help" in words:
        return
    given = command.make_context(name, rest).params
    settings.load_settings({}, parse_pairs(given.get("settings") or [], "-s"), folder=Path("nowhere"), environment={})


@functools.cache
def _group() -> Any:
    """All commands with their options: an app has only those of the command that it was made for."""
    group: Any = typer.main.get_command(app_for())
    for name in group.commands:
        own: Any = typer.main.get_command(app_for(name))
        group.commands[name] = own.commands[name]
    return group


def _crawl(block: Block, folder: Path, site: str) -> None:
    options = dict(block.options)
    file = folder / options.pop("file", f"line{block.line}.py")
    file.write_text(block.text.replace(SITE, site))
    spider = load_spider(file)
    start = options.pop("start", "/shop/")
    if "start" in block.options or not all(site in url for url in spider.start_urls):
        spider.start_urls = (f"http://{site}{start}",)  # a site of the wide world is left in peace
    spider.set_args(parse_pairs(options.pop("args", "").split(",") if "args" in block.options else [], "args"))
    crawled = asyncio.run(crawl(spider, folder / f"line{block.line}", delay=0.0, robots=True))
    came = {"items": len(crawled.items), "pages": crawled.counts.done, "dead": crawled.counts.dead}
    assert crawled.ending.state == "finished"
    expected = {"dead": "0", **options}
    assert {name: came[name] for name in expected} == {name: int(value) for name, value in expected.items()}, crawled


def _execute(block: Block, folder: Path, site: str) -> None:
    exec(compile(block.text.replace(SITE, site), block.where, "exec"), {"__name__": "block"})


def _call_tests(block: Block, folder: Path, site: str) -> None:
    names: dict[str, Any] = {"__name__": "block"}
    for file in folder.glob("*.py"):
        sys.modules.pop(file.stem, None)  # another page may have a file of this name
    exec(compile(block.text.replace(SITE, site), block.where, "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests
    for each in tests:
        given = {"tmp_path": folder / each.__name__} if "tmp_path" in inspect.signature(each).parameters else {}
        result = each(**given)
        if inspect.isawaitable(result):
            asyncio.run(_awaited(result))


async def _awaited(result: Any) -> None:
    await result


def _write(block: Block, folder: Path, site: str) -> None:
    _file(block, folder).write_text(block.text.replace(SITE, site))


def _replace(block: Block, folder: Path, site: str) -> None:
    file = _file(block, folder)
    lines = file.read_text().splitlines()
    for new in block.text.splitlines():
        at = [number for number, line in enumerate(lines) if line.split()[:1] == new.split()[:1]]
        assert len(at) == 1, f"{new.split()[0]} begins {len(at)} lines of {file.name}"
        lines[at[0]] = new
    file.write_text("\n".join(lines) + "\n")


def _file(block: Block, folder: Path) -> Path:
    (name,) = block.options
    return folder / name


def _run(block: Block, folder: Path, site: str) -> None:
    for command in commands(block):
        _shell(block, command.line, command.shown, folder, site)


def _type(block: Block, folder: Path, site: str) -> None:
    told = typed(block)
    _shell(block, f"uttu shell --plain http://{SITE}{block.options['at']}", told.shown, folder, site, told.line)


def _shell(block: Block, line: str, shown: list[str], folder: Path, site: str, typed: str = "") -> None:
    """Run a line as a user would, and see that it prints what is shown."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UTTU_")}
    environment |= {"PATH": path, "UTTU_DELAY": block.options.get("delay", "0")}
    done = subprocess.run(
        ["bash", "-c", line.replace(SITE, site)],
        input=typed.replace(SITE, site),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    printed = (done.stdout + done.stderr).replace(site, SITE).replace(">>> ", "")
    assert done.returncode == int(block.options.get("exit", "0")), f"{line}\n{printed}"
    lost = missing(shown, printed, loose="loose" in block.options)
    assert not lost, f"{line}\ndid not print\n{lost}\nbut\n{printed}"


_TESTS: dict[tuple[str, str], Callable[[Block, Path, str], None]] = {
    ("crawl", "python"): _crawl,
    ("run", "python"): _execute,
    ("run", "console"): _run,
    ("run", "pycon"): _type,
    ("tests", "python"): _call_tests,
    ("file", "python"): _write,
    ("file", "toml"): _write,
    ("replace", "python"): _replace,
}

_link = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_picture = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
_heading = re.compile(r"^#+ +(.*?) *#*$", re.MULTILINE)


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_the_links(page: Path) -> None:
    for link in _link.findall(prose(page)):
        if re.match(r"\w+:", link):
            continue
        target, _, anchor = link.partition("#")
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in _anchors(there), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_the_pictures(page: Path) -> None:
    for picture in _picture.findall(prose(page)):
        assert (page.parent / picture).is_file(), f"there is no picture {picture}"


def _anchors(page: Path) -> set[str]:
    """Headings as the web forges spell them in links."""
    headings = _heading.findall(prose(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
