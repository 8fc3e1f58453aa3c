"""Find the spiders of a folder, and start crawls in the background."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from uttu.errors import ConfigError, SpiderError, UttuError
from uttu.operations.crawls import read_all
from uttu.operations.spiders import ArgumentKind, StartRequest, find_spiders, start_crawl
from uttu.testing.site import Site, SiteProcess

SPIDER = '''"""Books of a shop."""
from uttu import Spider

spider = Spider("books", start={start!r}, args={{"pages": 3, "rate": 0.5, "deep": False, "tag": "", "ids": [1]}},
                delay=0, private=True)


@spider.page
def page(page):
    yield {{"url": page.url}}
    yield page.follow_all("a")
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


async def test_spiders_with_their_arguments(folder: Path) -> None:
    write(folder, "books.py", SPIDER.format(start="https://books.example/"))
    write(folder, "sub/two.py", "from uttu import Spider\na = Spider('a')\nb = Spider('b')\n")
    write(folder, "helper.py", "import os\n")
    write(folder, ".hidden/x.py", "from uttu import Spider\nx = Spider('x')\n")
    found = await find_spiders(folder)
    assert [(each.file, each.name) for each in found] == [
        ("books.py", "books"),
        ("sub/two.py", "a"),
        ("sub/two.py", "b"),
    ]
    books = found[0]
    assert books.description == "Books of a shop."
    assert books.start == ("https://books.example/",)
    assert [(each.name, each.kind, each.default) for each in books.arguments] == [
        ("pages", ArgumentKind.INTEGER, "3"),
        ("rate", ArgumentKind.NUMBER, "0.5"),
        ("deep", ArgumentKind.BOOLEAN, "false"),
        ("tag", ArgumentKind.TEXT, ""),
        ("ids", ArgumentKind.JSON, "[1]"),
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("from uttu import Spider\nSpider('x'\n", "syntax error"),
        ("from uttu import Spider\nimport os\nSpider('x')\nos._exit(3)\n", "exit code 3"),
        ("from uttu import Spider\nSpider('x')\nraise RuntimeError('oh no')\n", "oh no"),
    ],
)
async def test_files_that_can_not_be_loaded(folder: Path, text: str, error: str) -> None:
    write(folder, "bad.py", text)
    (found,) = await find_spiders(folder)
    assert (found.name, error in found.error) == ("", True), found.error


async def test_a_file_that_prints_and_changes(folder: Path) -> None:
    write(folder, "a.py", "from uttu import Spider\nprint('[1, 2]')\ns = Spider('one')\n")
    assert [each.name for each in await find_spiders(folder)] == ["one"]
    write(folder, "a.py", "from uttu import Spider\ns = Spider('second')\n")
    os.utime(folder / "a.py", (1, 1))
    assert [each.name for each in await find_spiders(folder)] == ["second"]


@pytest.fixture
def site() -> Iterator[SiteProcess]:
    with SiteProcess(Site(pages=60, links=5)) as site:
        yield site


async def finished(crawl: str, folder: Path) -> None:
    for _ in range(300):
        (status,) = (await read_all("", folder)).crawls
        if status.state == "finished":
            assert status.name == crawl
            return
        await asyncio.sleep(0.1)
    raise AssertionError(status)


async def test_a_crawl_goes_on_after_its_starter_was_killed(folder: Path, site: SiteProcess) -> None:
    write(folder, "books.py", SPIDER.format(start=site.url + "p/0"))
    program = (
        "import asyncio, time\nfrom pathlib import Path\nfrom uttu.operations.spiders import *\n"
        "started = asyncio.run(start_crawl(StartRequest(file='books.py', outputs=('out.jsonl',), "
        "settings={'delay': '0.05'})))\nprint(started.pid, started.log, flush=True)\ntime.sleep(60)\n"
    )
    starter = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert starter.stdout is not None
    pid, log = (await starter.stdout.readline()).decode().split()
    starter.kill()
    await starter.wait()
    await finished("books", folder)
    assert len((folder / "out.jsonl").read_text().splitlines()) == 60
    assert "60" in (folder / log).read_text()
    deadline = time.monotonic() + 10
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(int(pid), 0)
            await asyncio.sleep(0.05)
        os.kill(int(pid), signal.SIGKILL)


async def test_what_can_not_start(folder: Path) -> None:
    write(folder, "books.py", SPIDER.format(start="https://books.example/"))
    with pytest.raises(SpiderError):
        await start_crawl(StartRequest(file="nothing.py"), folder)
    with pytest.raises(ConfigError, match="unknown setting 'dellay'"):
        await start_crawl(StartRequest(file="books.py", settings={"dellay": "1"}), folder)
    with pytest.raises(ConfigError, match="takes no argument color"):
        await start_crawl(StartRequest(file="books.py", arguments={"color": "red"}), folder)
    with pytest.raises(UttuError, match="s3://"):
        await start_crawl(StartRequest(file="books.py", outputs=("s3://bucket/x.jsonl",)), folder)
    assert (await read_all("", folder)).crawls == []


async def test_secrets_are_not_in_the_list_of_processes(folder: Path, site: SiteProcess) -> None:
    write(folder, "books.py", SPIDER.format(start=site.url + "p/0"))
    settings = {"headers": '{"Authorization": "Bearer hush"}', "delay": "0.2"}
    started = await start_crawl(StartRequest(file="books.py", settings=settings), folder)
    try:
        assert b"hush" not in Path(f"/proc/{started.pid}/cmdline").read_bytes()
    finally:
        os.killpg(started.pid, signal.SIGKILL)
