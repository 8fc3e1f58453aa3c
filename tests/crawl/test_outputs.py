"""Outputs of a whole crawl: where items can't go, and files that are there already."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crawl.conftest import Project
from uttu.testing.site import Site, SiteProcess
from uttu.testing.waiting import wait_until


@pytest.fixture(scope="module")
def site() -> Iterator[SiteProcess]:
    with SiteProcess(Site(pages=6)) as running:
        yield running


def crawl(project: Project, site: SiteProcess, *words: str) -> tuple[int, str]:
    done = project.run("crawl", "spider.py", *words, START=f"{site.url}p/0")
    return done.returncode, done.stderr


def entries(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


@pytest.mark.parametrize("target", ["s3://bucket/x.jsonl", "S3://bucket/x.jsonl", "ftp://host/x.csv", "s3:/b/x.jsonl"])
def test_an_unknown_scheme_is_refused_and_leaves_nothing(project: Project, site: SiteProcess, target: str) -> None:
    before = entries(project.folder)
    code, said = crawl(project, site, "-o", target)
    assert code == 2
    assert said.startswith(f"uttu: The output {target!r}: Uttu can't write to ")
    assert said.count("\n") == 1
    assert ".jsonl" in said
    assert "redis://" in said
    assert entries(project.folder) - before <= {"__pycache__"}
    assert not site.records()


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.json", "out.parquet"])
def test_a_file_of_another_program_is_not_replaced(project: Project, site: SiteProcess, name: str) -> None:
    file = project.folder / name
    file.write_text("id;name\n1;mine\n")
    before = len(site.records())
    code, said = crawl(project, site, "-o", name)
    assert code == 2
    assert name in said
    assert "--overwrite" in said
    assert file.read_text() == "id;name\n1;mine\n"
    assert len(site.records()) == before
    assert "pages" not in project.run("status").stdout

    assert crawl(project, site, "-o", name, "--overwrite")[0] == 0
    assert file.read_bytes()[:8] != b"id;name\n"
    written = file.stat().st_ino
    assert crawl(project, site, "-o", name)[0] == 0, "it is Uttu's own by now"
    assert name == "out.parquet" or file.stat().st_ino == written


def test_a_file_that_was_edited_is_not_replaced(project: Project, site: SiteProcess) -> None:
    file = project.folder / "out.csv"
    assert crawl(project, site, "-o", "out.csv")[0] == 0
    file.write_text(file.read_text() + "mine,\n")
    edited = file.read_text()
    code, said = crawl(project, site, "-o", "out.csv")
    assert (code, file.read_text()) == (2, edited)
    assert "has changed since Uttu wrote it" in said
    kept = project.run("status", "pages", "--json").stdout
    assert '"state":"finished"' in kept, "the crawl before is as it was"
    assert crawl(project, site, "-o", "out.csv", "--fresh")[0] == 2
    file.unlink()
    assert crawl(project, site, "-o", "out.csv")[0] == 0


def test_a_crawl_that_is_resumed_goes_on_with_its_file(project: Project, site: SiteProcess) -> None:
    assert crawl(project, site, "-o", "out.jsonl", "--limit", "2")[0] == 0
    assert crawl(project, site, "-o", "out.jsonl", "--limit", "20", "--resume")[0] == 0
    assert len(project.rows()) == 6
    other = project.folder / "other.jsonl"
    other.write_text("{}\n")
    assert crawl(project, site, "-o", "out.jsonl", "-o", "other.jsonl", "--resume")[0] == 2
    assert other.read_text() == "{}\n"
    assert len(project.rows()) == 6


def test_a_crawl_of_an_older_version_knows_its_outputs(project: Project, site: SiteProcess) -> None:
    assert crawl(project, site, "-o", "out.jsonl")[0] == 0
    with contextlib.closing(sqlite3.connect(project.folder / ".uttu" / "crawls" / "pages.db")) as db, db:
        assert db.execute("DELETE FROM facts WHERE key LIKE 'written %'").rowcount == 1
    assert crawl(project, site, "-o", "./out.jsonl")[0] == 0
    assert len(project.rows()) == 6


def test_a_file_of_another_crawl_of_the_folder_is_replaced(project: Project, site: SiteProcess) -> None:
    """Its items are in its own store, and can be exported again."""
    assert crawl(project, site, "-o", "out.jsonl", "--crawl", "other")[0] == 0
    assert crawl(project, site, "-o", "out.jsonl", "--limit", "1")[0] == 0
    assert len(project.rows()) == 1
    assert project.run("export", "other", "-o", "out.jsonl").returncode == 0
    assert len(project.rows()) == 6


def test_a_file_whose_writer_was_killed_is_replaced(project: Project, site: SiteProcess) -> None:
    process = project.start(
        "crawl", "spider.py", "-o", "out.jsonl", "-o", "out.json", "-s", "stay=true", START=f"{site.url}p/0"
    )
    wait_until(lambda: (project.folder / "out.jsonl").exists() and len(project.rows()) == 6, "all items are written")
    process.kill()
    process.communicate()
    assert crawl(project, site, "-o", "out.jsonl", "-o", "out.json", "--fresh")[0] == 0
    assert len(project.rows()) == 6


def test_an_export_does_not_replace_a_file_of_another_program(project: Project, site: SiteProcess) -> None:
    assert crawl(project, site)[0] == 0
    file = project.folder / "items.csv"
    file.write_text("mine\n")
    for words in (("export", "-o", "items.csv"), ("export", "--follow", "-o", "items.csv")):
        done = project.run(*words)
        assert done.returncode == 2, done.stderr
        assert "--overwrite" in done.stderr
    assert file.read_text() == "mine\n"
    assert project.run("export", "-o", "s3://bucket/x.jsonl").returncode == 2
    assert project.run("export", "-o", "items.csv", "--overwrite").returncode == 0
    assert file.read_text().startswith("url,title\n")
    assert project.run("export", "-o", "items.csv").returncode == 0


@pytest.mark.parametrize(
    "start", ["file:///etc/passwd", "ftp://host/", "example.org", "http://", "javascript:alert(1)"]
)
def test_a_start_url_that_is_refused_leaves_no_crawl(project: Project, start: str) -> None:
    done = project.run("crawl", "spider.py", "-o", "out.jsonl", START=f"http://127.0.0.1:9/ {start}")
    assert done.returncode == 3, done.stderr
    assert f"{start!r} is not a URL to start from" in done.stderr
    assert "Traceback" not in done.stderr
    assert "pages" not in project.run("status").stdout
    assert not (project.folder / "out.jsonl").exists()
    assert not list((project.folder / ".uttu" / "crawls").glob("*.db*.db"))
    assert not (project.folder / ".uttu" / "crawls" / "pages.db").exists()


def test_a_start_url_that_is_refused_leaves_the_crawl_before(project: Project, site: SiteProcess) -> None:
    assert crawl(project, site, "-o", "out.jsonl")[0] == 0
    done = project.run("crawl", "spider.py", "-o", "out.jsonl", START="ftp://host/")
    assert done.returncode == 3
    assert '"state":"finished"' in project.run("status", "pages", "--json").stdout
    assert len(project.rows()) == 6


def test_an_output_that_cannot_be_written_leaves_no_crawl(project: Project, site: SiteProcess) -> None:
    os.mkfifo(project.folder / "pipe.jsonl")
    (project.folder / "there.csv").mkdir()
    for name in ("there.csv", "spider.py/x.jsonl", "pipe.jsonl"):
        assert crawl(project, site, "-o", name)[0] == 1
        assert "pages" not in project.run("status").stdout
