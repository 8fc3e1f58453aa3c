"""Files, disks and stores that can't be used: a message that says what to do, the right exit code, nothing lost."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SmallDisk
from tests.crawl.conftest import SPIDER, Project
from uttu.testing.site import Site, SiteProcess


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def (:\n", r"spider\.py has a syntax error in line 1"),
        ("x = 1\n", r"spider\.py has no spider"),
        (SPIDER + "other = Spider('two')\n", r"has 2 spiders \(pages, two\)\. Choose one with --spider"),
        (SPIDER.replace('os.environ["START"].split()', '"example.org"'), r"'example\.org' is not a URL to start from"),
        (SPIDER.replace("delay=0", "dealy=0"), r"unknown setting 'dealy'; did you mean 'delay'\?"),
        ("import sys\nsys.exit(0)\n", r"Cannot load .*:\n(.|\n)*line 2(.|\n)*SystemExit: 0"),
        ("raise RuntimeError('no')\n", r"Cannot load .*:\n(.|\n)*RuntimeError: no"),
    ],
)
def test_a_spider_that_can_not_be_loaded(project: Project, text: str, message: str) -> None:
    project.write("spider.py", text)
    done = project.run("crawl", "spider.py", START="http://127.0.0.1:9/")
    assert done.returncode == 3
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr.replace("Traceback (most recent call last)", "", "Cannot load" in message)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["crawl"], 2, "Missing argument"),
        (["crawl", "missing.py"], 3, "There is no spider file missing.py"),
        (["crawl", "spider.py", "-s", "delay"], 2, "write it as key=value"),
        (["crawl", "spider.py", "-s", "delay=soon"], 2, "delay='soon'"),
        (["crawl", "spider.py", "-o", "out.xyz"], 2, "out.xyz"),
        (["crawl", "spider.py", "-o", "a.jsonl", "-o", "a.jsonl"], 2, "is given twice"),
        (["crawl", "spider.py", "--fail-on", "nonsense"], 2, "Write a comparison"),
        (["crawl", "spider.py", "--fail-on", "items>5%"], 2, "items is a number, not a share"),
        (["crawl", "spider.py", "-s", "nope=1"], 2, "unknown setting 'nope'"),
        (["crawl", "spider.py", "-s", "order=random"], 2, "order='random': give one of fifo, lifo, priority"),
        (["crawl", "spider.py", "-s", "robots=never"], 2, "robots='never': give true or false"),
        (["crawl", "spider.py", "-s", "timeout=100"], 2, "must be shorter than lease_seconds"),
        (["crawl", "spider.py", "--workers", "100000"], 2, "100000 is not in the range 1<=x<=256"),
        (["worker", "spider.py"], 4, "There is no crawl 'pages' here"),
    ],
)
def test_wrong_usage(project: Project, arguments: list[str], code: int, message: str) -> None:
    done = project.run(*arguments, START="http://127.0.0.1:9/")
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("line", ["delay = 'soon'", "nope = 1", "order = 'random'", "timeout = 100"])
def test_the_same_in_the_configuration_file_is_no_wrong_usage(project: Project, line: str) -> None:
    project.write("uttu.toml", line)
    done = project.run("crawl", "spider.py", "-s", "concurrency=2", START="http://127.0.0.1:9/")
    assert done.returncode == 3, done.stderr


def test_a_configuration_file_with_an_error(project: Project) -> None:
    project.write("uttu.toml", "delay = [")
    done = project.run("crawl", "spider.py", START="http://127.0.0.1:9/")
    assert done.returncode == 3
    assert "Cannot read uttu.toml" in done.stderr


def test_an_output_that_can_not_be_written(project: Project) -> None:
    (project.folder / "out.jsonl").mkdir()
    with SiteProcess(Site(pages=20)) as site:
        done = project.run("crawl", "spider.py", "-o", "out.jsonl", START=site.url + "p/0")
        assert done.returncode == 1
        assert "out.jsonl" in done.stderr
        (project.folder / "out.jsonl").rmdir()
        again = project.run("crawl", "spider.py", "-o", "out.jsonl", START=site.url + "p/0")
        assert again.returncode == 0, again.stderr
        assert len(project.rows()) == 20


def test_a_store_of_a_newer_version(project: Project) -> None:
    path = project.folder / ".uttu" / "crawls" / "pages.db"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    done = project.run("crawl", "spider.py", START="http://127.0.0.1:9/")
    assert done.returncode == 4
    assert "was made by a newer Uttu" in done.stderr
    assert "--fresh" in done.stderr
    assert path.read_bytes() == before
    assert not list(path.parent.glob("pages.db-*")), "nothing is left to be written into it later"


def test_a_store_that_is_no_database(project: Project) -> None:
    path = project.folder / ".uttu" / "crawls" / "pages.db"
    path.parent.mkdir(parents=True)
    path.write_text("this is not a database, but it is long enough to be taken for one" * 20)
    done = project.run("crawl", "spider.py", START="http://127.0.0.1:9/")
    assert done.returncode == 4
    assert "--fresh" in done.stderr


def test_a_folder_that_can_not_be_made(project: Project) -> None:
    (project.folder / ".uttu").write_text("a file")
    done = project.run("crawl", "spider.py", START="http://127.0.0.1:9/")
    assert done.returncode == 4
    assert ".uttu" in done.stderr
    assert "Traceback" not in done.stderr


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes}, resource.RLIM_INFINITY))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.argv = ["uttu", *sys.argv[1:]]
from uttu.cli import main
main()
"""


def limited(folder: Path, size: int, start: str) -> subprocess.CompletedProcess[str]:
    """The crawl with files that can't grow past ``size`` bytes: to a program, a full disk."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED.format(bytes=size), "crawl", "spider.py", "-o", "out.jsonl"],
        cwd=folder,
        env=os.environ | {"START": start},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "left", "code", "message"),
    [
        (("--frontier", "sqlite:small", "-o", "out.jsonl"), 1_000_000, 4, r"pages\.db: .*full.*\. Free space and run"),
        (("-o", "small/out.jsonl"), 100_000, 1, r"Cannot write .*out\.jsonl: No space left on device. Free some space"),
    ],
)
def test_a_full_disk(
    project: Project, small_disk: SmallDisk, arguments: tuple[str, ...], left: int, code: int, message: str
) -> None:
    """Of the store or of an output: the crawl ends, and goes on when there is room again."""
    with SiteProcess(Site(pages=3000)) as site:
        start, command = site.url + "p/0", ("crawl", "spider.py", *arguments)
        small_disk.fill(but=left)
        done = project.run(*command, START=start)
        assert done.returncode == code, done.stderr
        assert re.search(message, done.stderr), done.stderr
        assert "run the same command again" in done.stderr
        assert "Traceback" not in done.stderr
        assert len(site.records()) > 0
        small_disk.free()
        again = project.run(*command, START=start)
        assert again.returncode == 0, again.stderr
        assert "resuming crawl pages" in again.stderr
        rows = project.rows(arguments[-1])
        assert sorted(row["url"] for row in rows) == sorted(f"{site.url}p/{n}" for n in range(3000))


def test_a_limit_on_the_size_of_files(project: Project) -> None:
    """The store reaches it long before an output does."""
    with SiteProcess(Site(pages=3000)) as site:
        start = site.url + "p/0"
        done = limited(project.folder, 150_000, start)
        assert done.returncode == 4, done.stderr
        assert re.search(r"pages\.db.*(full|disk I/O error)", done.stderr), done.stderr
        assert "run the same command again" in done.stderr
        assert "Traceback" not in done.stderr
        again = project.run("crawl", "spider.py", "-o", "out.jsonl", START=start)
        assert again.returncode == 0, again.stderr
        assert sorted(row["url"] for row in project.rows()) == sorted(f"{site.url}p/{n}" for n in range(3000))
