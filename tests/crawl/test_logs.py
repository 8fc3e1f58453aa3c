"""The log of whole crawls: silent by default, text and JSON, over all processes of a crawl."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from tests.crawl.conftest import SPIDER, Project
from uttu.testing.site import Site, SiteProcess

LINES = """
    page.log.info("title %s", page.css("title::text").get())
    spider.log.debug("done")
"""
LOGGING = SPIDER + LINES


def rows(project: Project, name: str = "x.log") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project.folder / name).read_text().splitlines()]


def test_a_crawl_is_silent_by_default(project: Project) -> None:
    project.write("spider.py", LOGGING)
    with SiteProcess(Site(pages=3)) as site:
        done = project.run("crawl", "spider.py", START=f"{site.url}p/0 {site.url}none")
    assert done.returncode == 0
    assert "title" not in done.stderr
    assert "uttu." not in done.stderr


def test_verbose_shows_changes_of_state(project: Project) -> None:
    project.write("spider.py", LOGGING)
    with SiteProcess(Site(pages=3)) as site:
        done = project.run("crawl", "spider.py", "-v", START=f"{site.url}p/0 {site.url}none")
    assert done.returncode == 0
    shown = [line for line in done.stderr.splitlines() if " INFO " in line]
    text = "\n".join(line.partition(": ")[0].split()[-1] + ": " + line.partition(": ")[2] for line in shown)
    assert "uttu.crawl: Opened crawl pages in .uttu: 0 done, 0 to do" in text
    assert "uttu.crawl: The crawl is running" in text
    assert re.search(r"uttu\.worker: Worker \S+ has joined", text)
    assert f"uttu.page: Given up (http): {site.url}none: answered with status 404" in text
    assert re.search(rf"uttu\.spider\.pages: {site.url}p/0: title ", text)
    assert re.search(r"uttu\.worker: Worker \S+ has left; pages: 3, items: 3", text)
    assert text.endswith("uttu.crawl: The crawl is finished")
    assert " DEBUG " not in done.stderr


def test_debug_has_a_line_for_each_page(project: Project) -> None:
    with SiteProcess(Site(pages=20)) as site:
        done = project.run("crawl", "spider.py", "-vv", START=site.url + "p/0")
    lines = re.findall(r" DEBUG   \d+ uttu\.page: (\d+) GET (\S+) [\d.]+ KB \d+\.\d\d s$", done.stderr, re.MULTILINE)
    assert Counter(lines) == Counter(("200", f"{site.url}p/{number}") for number in range(20))


def test_all_processes_log_to_one_file_as_json(project: Project) -> None:
    project.write("spider.py", LOGGING)
    with SiteProcess(Site(pages=300, latency=0.01)) as site:
        options = ("--log-level", "debug", "--log-file", "x.log", "--log-format", "json")
        done = project.run("crawl", "spider.py", "--workers", "2", *options, START=site.url + "p/0")
    assert done.returncode == 0, done.stderr
    assert '"level"' not in done.stderr
    logged = rows(project)
    pages = [row for row in logged if row["logger"] == "uttu.page"]
    assert {(row["status"], row["method"], row["url"]) for row in pages} == {
        (200, "GET", f"{site.url}p/{number}") for number in range(300)
    }
    assert len(pages) == 300
    # An event loop may wake up a little before its time.
    assert all(row["bytes"] > 0 and row["seconds"] > 0.009 for row in pages)
    assert len({row["process"] for row in pages}) == 2
    own = [row for row in logged if row["logger"] == "uttu.spider.pages"]
    assert {row["url"] for row in own if row["level"] == "info"} == {row["url"] for row in pages}
    assert logged[0]["message"] == "Opened crawl pages in .uttu: 0 done, 0 to do"
    assert logged[-1]["state"] == "finished"


def test_retries_and_held_lanes_are_logged(project: Project) -> None:
    with SiteProcess(Site()) as site:
        done = project.run(
            "crawl",
            "spider.py",
            "--log-file",
            "x.log",
            "--log-format",
            "json",
            "-s",
            "retries=1",
            START=site.url + "odd/status/503",
        )
    assert done.returncode == 1
    logged = rows(project)
    retry = next(row for row in logged if row["message"].startswith("Retry"))
    assert (retry["url"], retry["attempt"], retry["level"]) == (site.url + "odd/status/503", 1, "info")
    assert next(row for row in logged if row["logger"] == "uttu.lane")["lane"] in site.url
    assert next(row for row in logged if row["message"].startswith("Given up"))["kind"] == "http"


def test_variables_choose_as_options_do(project: Project) -> None:
    with SiteProcess(Site(pages=3)) as site:
        done = project.run(
            "crawl",
            "spider.py",
            "--workers",
            "2",
            START=site.url + "p/0",
            UTTU_LOG_LEVEL="debug",
            UTTU_LOG_FORMAT="json",
        )
    logged = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert sum(row["logger"] == "uttu.page" for row in logged) == 3


def test_a_wrong_level_is_wrong_usage(project: Project) -> None:
    done = project.run("crawl", "spider.py", "--log-level", "loud", START="http://a.example/")
    assert done.returncode == 2
    assert done.stderr == (
        "uttu: --log-level: there is no 'loud'; give one of: debug, info, warning, error, critical\n"
    )


def test_a_log_file_that_cannot_be_written_is_refused(project: Project) -> None:
    done = project.run("crawl", "spider.py", "--log-file", "none/x.log", START="http://a.example/")
    assert done.returncode == 3
    assert done.stderr.startswith("uttu: Cannot write the log file ")
