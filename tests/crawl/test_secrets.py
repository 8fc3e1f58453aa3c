"""What holds a password reaches every process of a crawl, and is to be seen nowhere."""

from __future__ import annotations

import json

import psutil

from tests.crawl.conftest import Project, wait_for
from uttu.testing.site import Site, SiteProcess

SPIDER = """
import os
from uttu import Page, Spider

spider = Spider("told", start=[os.environ["START"] + f"odd/echo?n={n}" for n in range(20)], robots=False, delay=0)

@spider.page
def page(page: Page):
    yield {"headers": page.json()["headers"]}
"""
HEADERS = json.dumps({"Authorization": "Bearer opensesame"})


def test_headers_reach_all_processes_and_no_list_of_them(project: Project) -> None:
    project.write("spider.py", SPIDER)
    with SiteProcess(Site(pages=1)) as site:
        words = (
            "crawl",
            "spider.py",
            "-o",
            "out.jsonl",
            "--workers",
            "2",
            "-s",
            "stay=true",
            "-s",
            f"headers={HEADERS}",
        )
        main = project.start(*words, START=site.url)
        wait_for(site, 20)
        commands = [" ".join(psutil.Process(pid).cmdline()) for pid in project.worker_pids(main)]
        assert len(commands) == 2
        assert "opensesame" not in "".join(commands)
        alone = project.run("worker", "spider.py", START=site.url)
        assert alone.returncode == 3
        assert "UTTU_HEADERS in the environment" in alone.stderr
        told = project.start("worker", "spider.py", START=site.url, UTTU_HEADERS=HEADERS)
        while len(json.loads(project.run("status", "told", "--json").stdout)["workers"]) < 3:
            assert told.poll() is None
        shown = project.run("status", "told").stdout + project.run("stop", "told").stdout
        _, err = told.communicate(timeout=60)
        assert told.returncode == 0, err
        main.communicate(timeout=60)
    assert "opensesame" not in shown
    assert shown.count("-s 'headers=***'") == 1
    assert len(project.rows()) == 20
    assert all("opensesame" in json.dumps(row["headers"]) for row in project.rows())
