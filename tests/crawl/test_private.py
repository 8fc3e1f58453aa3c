"""Private hosts: a crawl that starts there goes on there, however late it is told; nobody else leads it there."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.crawl.conftest import Project, wait_for
from uttu import Page, Request, Spider
from uttu.engine.seeds import parse_request
from uttu.runtime import crawl as launch
from uttu.runtime.registry import open_frontier
from uttu.settings import Settings
from uttu.testing.crawls import crawl
from uttu.testing.site import Site, SiteProcess, serve

FIRST, SECOND = "127.77.0.1", "127.77.0.2"
NAMED = "inside.example"
SPIDER = """
import os
from uttu import Page, Spider

spider = Spider("pages", start=os.environ["START"], robots=False, delay=0, per_host=0)

@spider.page
def page(page: Page):
    yield {"url": page.url}
    yield page.follow_all("a")
"""


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads to the second host."""
    look_up = socket.getaddrinfo

    def look_up_named(name: Any, *arguments: Any, **options: Any) -> Any:
        return look_up(SECOND if name == NAMED else name, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_named)


def follow(page: Page) -> Iterator[Sequence[Request]]:
    # The site writes out its own address.
    yield page.follow_all("a")
    yield page.follow_all([url.replace(f"//{SECOND}:", f"//{NAMED}:") for url in page.links() if NAMED in page.url])


@pytest.mark.parametrize("host", [SECOND, NAMED])
async def test_a_start_url_that_comes_late(tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_SEED_BATCH", 1)
    async with serve(Site(pages=40, hosts=2)) as site:
        spider = Spider("late")
        spider.page(follow)

        @spider.start
        async def start() -> AsyncIterator[str]:
            yield site.urls[0] + "odd/status/200"
            yield site.urls[1].replace(SECOND, host) + "p/1"

        done = await crawl(spider, tmp_path)
        assert not done.dead
        assert len({record.path for record in site.log if record.host == SECOND}) == 20


@pytest.mark.parametrize("host", [SECOND, NAMED])
async def test_a_page_does_not_lead_to_another_private_host(tmp_path: Path, host: str) -> None:
    async with serve(Site(pages=1, hosts=2)) as site:
        target = site.urls[1].replace(SECOND, host) + "p/0"
        spider = Spider("led", start=site.urls[0] + "p/0")

        @spider.page
        def lead(page: Page) -> list[Request]:
            # By hand, as if it were a start: the same depth, and made of the start's own request.
            return [Request(url=target), Request(url=target, salt="2", start=True)]

        done = await crawl(spider, tmp_path)
        assert [letter.kind for letter in done.dead] == ["scope"] * (2 if host == NAMED else 0)
        assert {record.host for record in site.log} == {FIRST}


async def test_a_name_that_is_pushed(tmp_path: Path) -> None:
    async with serve(Site(pages=40, hosts=2)) as site:
        spider = Spider("pushed", start=site.urls[0] + "odd/status/200")
        spider.page(follow)
        catalog = await open_frontier("", tmp_path)
        store = (await launch.open_crawl(catalog, "pushed", Settings(), fresh=False, resume=False)).store
        await catalog.keep("pushed")
        url = site.urls[1].replace(SECOND, NAMED) + "p/1"
        # Whatever depth it is pushed with.
        await store.frontier.put([parse_request(json.dumps({"url": url, "depth": 3}).encode(), None)])
        await store.frontier.close()
        await catalog.close()
        done = await crawl(spider, tmp_path)
        assert not done.dead
        assert len({record.path for record in site.log if record.host == SECOND}) == 20


def test_a_host_that_is_pushed_into_a_crawl_of_several_processes(project: Project) -> None:
    project.write("spider.py", SPIDER)
    with SiteProcess(Site(pages=40, hosts=2)) as site:
        first = site.url + "odd/status/200"
        main = project.start("crawl", "spider.py", "--workers", "2", "-s", "stay=true", START=first)
        wait_for(site, 1)
        pushed = project.run("push", "pages", site.urls[1] + "p/1")
        assert pushed.returncode == 0, pushed.stderr
        wait_for(site, 41)
        _stop(project, main)
        assert len({record.path for record in site.records() if record.host == SECOND}) == 20
        why = project.run("why", site.urls[1] + "new", START=first).stdout
        assert "a private address, where only pages of the same host may lead" in why


def test_a_host_that_other_programs_push(project: Project, redis_url: str) -> None:
    redis = pytest.importorskip("redis")
    project.write("spider.py", SPIDER)
    with SiteProcess(Site(pages=40, hosts=2)) as site, redis.Redis.from_url(redis_url) as server:
        name = f"test-{secrets.token_hex(6)}"
        environment = {"UTTU_FRONTIER": redis_url, "START": site.url + "odd/status/200"}
        words = ("crawl", "spider.py", "--crawl", name, "--workers", "2", "-s", "stay=true")
        main = project.start(*words, **environment)
        wait_for(site, 1)
        server.rpush(f"uttu:{{{name}}}:start", site.urls[1] + "p/1")
        wait_for(site, 41)
        _stop(project, main, name, **environment)


def _stop(project: Project, main: subprocess.Popen[str], name: str = "pages", **environment: str) -> None:
    assert project.run("stop", name, **environment).returncode == 0
    main.communicate(timeout=60)
