"""``uttu push``: more start URLs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import HOST, Uttu, make_crawl, supervised
from tests.cli.statuses import in_store, standing
from tests.crawl.conftest import Project
from tests.crawl.conftest import project as project
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.model import Pace, Request
from uttu.model.crawl import CrawlState
from uttu.model.lease import Trace
from uttu.testing.contracts.store import list_lanes
from uttu.testing.site import Site, SiteProcess


def trace(url: str) -> Trace:
    return in_store(lambda store: store.inspector.trace(Request.to(url).fingerprint))


def test_urls_of_the_command_line(uttu: Uttu) -> None:
    make_crawl()
    told = uttu("push", "shop", f"{HOST}/new", f"{HOST}/gone", "new.example/a#b")
    assert (told.code, told.err) == (0, "")
    assert told.out == "2 new pages for shop, 1 were there already; go on with: uttu crawl shop.py\n"
    assert trace(f"{HOST}/new").state == trace("https://new.example/a").state == "pending"
    assert trace(f"{HOST}/gone").state == "dead"
    assert standing().state == CrawlState.STOPPED


def test_a_file_of_urls_and_requests(uttu: Uttu) -> None:
    make_crawl()
    request = {"url": f"{HOST}/form", "method": "POST", "body": "q=1", "handler": "each", "meta": {"n": 1}}
    Path("urls").write_text(f"{HOST}/a\r\n\n  {HOST}/b  \n{json.dumps(request)}\n{HOST}/a")
    told = uttu("push", "shop", "-f", "urls", f"{HOST}/c", "--json")
    assert (told.code, told.err) == (0, "")
    assert json.loads(told.out) == {"crawl": "shop", "new": 4, "known": 1, "bad": 0}
    form = Request.to(f"{HOST}/form", method="POST", body=b"q=1", handler="each", meta={"n": 1}, start=True)
    assert in_store(lambda store: store.inspector.trace(form.fingerprint)).request == form


def test_a_bad_line_is_named_and_the_rest_goes_on(uttu: Uttu) -> None:
    make_crawl()
    Path("urls").write_bytes(f'{HOST}/a\nno url\n\n{{"url": 3}}\n\xff\n{HOST}/b\n'.encode("latin-1"))
    told = uttu("push", "shop", "-f", "urls", "ftp://x.example/", f"{HOST}/c")
    assert told.code == 1
    assert told.out.startswith("3 new pages for shop; ")
    lines = told.err.splitlines()
    assert "'ftp://x.example/'" in lines[0]
    assert [line.split(": ")[0] for line in lines[1:4]] == ["urls, line 2", "urls, line 4", "urls, line 5"]
    assert lines[4] == "4 entries could not be used"


def test_more_than_fits_into_one_batch(uttu: Uttu) -> None:
    make_crawl()
    Path("urls").write_text("".join(f"{HOST}/many/{number}\n" for number in range(10_000)) + "bad\n")
    told = uttu("push", "shop", "-f", "urls")
    assert told.out.startswith("10,000 new pages for shop; ")
    assert "urls, line 10001: " in told.err


@pytest.mark.parametrize(
    ("state", "then"),
    [
        (CrawlState.RUNNING, "the running crawl takes them up"),
        (CrawlState.PAUSED, "it is paused, go on with: uttu resume shop"),
    ],
)
def test_into_a_crawl_that_runs(uttu: Uttu, state: CrawlState, then: str) -> None:
    make_crawl(state=state)
    with supervised():
        assert uttu("push", "shop", f"{HOST}/new").out == f"1 new page for shop; {then}\n"


def test_into_a_crawl_that_ended(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.LIMITED)
    assert uttu("push", "shop", f"{HOST}/new").out.endswith("go on with: uttu crawl shop.py --resume\n")
    make_crawl("done", state=CrawlState.FINISHED)
    told = uttu("push", "done", f"{HOST}/new")
    assert told.code == 1
    assert "crawl 'done' has finished, and starts anew with: uttu crawl shop.py --crawl done. One that" in told.err


def test_new_pages_stand_where_the_crawl_s_order_has_them(uttu: Uttu) -> None:
    rules = Rules(order="priority", pace=Pace(3.0, 2))
    make_crawl(rules=rules)
    Path("urls").write_text('{"url": "https://p.example/1"}\n{"url": "https://p.example/2", "priority": 5}\n')
    assert uttu("push", "shop", "-f", "urls").code == 0
    assert trace("https://p.example/2").ahead == 0
    assert trace("https://p.example/1").ahead == 1

    async def pace(store: CrawlStore) -> Pace:
        return next(lane.pace for lane in await list_lanes(store.inspector) if lane.name == "p.example")

    assert in_store(pace) == rules.pace


def test_what_can_not_be(uttu: Uttu) -> None:
    assert uttu("push", "shop", f"{HOST}/new").code == 4
    make_crawl()
    assert uttu("push", "shop").code == 2
    told = uttu("push", "shop", "-f", "nowhere")
    assert (told.code, told.err) == (1, "uttu: nowhere: No such file or directory\n")
    assert uttu("push", "shop", "-f", ".").code == 1


def test_what_comes_through_a_pipe_is_put_as_it_comes(project: Project) -> None:
    with SiteProcess(Site(pages=10)) as site:
        assert project.run("crawl", "spider.py", "--limit", "1", START=site.url + "p/0").returncode == 0
        push = subprocess.Popen(
            [sys.executable, "-m", "uttu", "push", "pages", "-f", "-"],
            cwd=project.folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        project.started.append(push)
        assert push.stdin is not None
        push.stdin.write("https://a.example/\n")
        push.stdin.flush()
        # It is there while the pipe is open still.
        while project.run("why", "https://a.example/").returncode:
            assert push.poll() is None
        push.stdin.write("https://b.example/\nbad\n")
        out, err = push.communicate(timeout=60)
        assert push.returncode == 1
        assert out.startswith("2 new pages for pages; go on with: ")
        assert err.splitlines()[0].startswith("standard input, line 3: ")
