"""``uttu why``: what became of a URL, in every way it can end or wait."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import HOST, TRACEBACK, Told, Uttu, make_crawl, supervised
from tests.cli.statuses import in_store
from uttu.frontier.catalog import CrawlStore
from uttu.model import Done, Redirect, Request
from uttu.model.crawl import CrawlState, Reason


@pytest.fixture
def why(uttu: Uttu) -> Any:
    make_crawl()

    def ask(url: str, *more: str) -> Told:
        return uttu("why", url, *more)

    return ask


def test_done(why: Any) -> None:
    told = why(f"{HOST}/")
    assert told.code == 0
    assert told.err == ""
    first, second = told.out.splitlines()
    assert first == f"{HOST}/"
    # The page was done when the fixture settled it, which may be a moment ago on a busy machine.
    assert re.fullmatch(r"  done .*(?:now| s ago): status 200, 6\.0 kB, 2 new links, 2 items", second)
    data = json.loads(why(f"{HOST}/", "--json").out)
    assert (data["state"], data["status"], data["size"], data["links"], data["items"]) == ("done", 200, 6000, 2, 2)


def test_another_spelling_is_said_to_be_the_same(why: Any) -> None:
    told = why("shop.EXAMPLE/a/..#top")
    assert told.code == 0
    assert told.err == f"the same as {HOST}/\n"


def test_a_redirect_and_where_it_led(why: Any) -> None:
    told = why(f"{HOST}/moved")
    assert told.code == 0
    lines = told.out.splitlines()
    assert lines[2] == f"  redirected to {HOST}/"
    assert lines[3] == f"{HOST}/"
    assert "2 items" in lines[4]
    found = json.loads(why(f"{HOST}/moved", "--json").out)
    assert (found["reason"], found["redirect"]) == (f"redirected to {HOST}/", {"redirected_to": f"{HOST}/"})
    assert found["then"][0]["url"] == f"{HOST}/"


def test_a_redirect_that_was_refused(uttu: Uttu) -> None:
    make_crawl()
    target, refused = "https://else.example/", "outside the allowed domains"

    async def settle(store: CrawlStore) -> None:
        await store.frontier.put([Request(url=f"{HOST}/away", priority=9)])
        leases = await store.frontier.lease(10, "w")
        (lease,) = [each for each in leases if each.request.url == f"{HOST}/away"]
        await store.frontier.settle([Done(lease=lease, status=302, redirect=Redirect(target, refused))])

    in_store(settle)
    lines = uttu("why", f"{HOST}/away").out.splitlines()
    assert lines[1].endswith(": status 302, 0 B, 0 new links, 0 items")
    assert lines[2:] == [f"  redirected to {target}, which is not fetched: {refused}"]
    found = json.loads(uttu("why", f"{HOST}/away", "--json").out)
    assert (found["redirect"], found["then"]) == ({"redirected_to": target, "refused": refused}, [])


def test_dead_with_its_traceback(why: Any) -> None:
    told = why(f"{HOST}/broken")
    assert told.code == 0
    assert "handler: ValueError: no price" in told.out
    assert f"uttu retry shop --url {HOST}/broken\n" in told.out
    for line in TRACEBACK.splitlines():
        assert line in told.out


def test_dead_by_robots(why: Any) -> None:
    told = why(f"{HOST}/private/")
    assert told.code == 0
    assert "robots: disallowed by the site's robots.txt" in told.out
    assert "uttu retry" not in told.out


def test_delayed(why: Any) -> None:
    told = why(f"{HOST}/again")
    assert told.code == 0
    assert "  delayed: to be tried again at " in told.out
    assert "in 10 min, after 1 try" in told.out
    assert "answered with status 500" in told.out


def test_leased_by_a_worker_that_is_gone(why: Any) -> None:
    told = why(f"{HOST}/leased")
    assert told.code == 0
    assert "  leased by w1 until " in told.out
    assert "that worker is gone" in told.out


def test_leased_by_a_worker_that_lives(why: Any) -> None:
    with supervised():
        assert "that worker is alive (process 4711)" in why(f"{HOST}/leased").out


def test_pending(why: Any) -> None:
    told = why("https://slow.example/b")
    assert told.code == 0
    assert "  pending in the lane slow.example: 1 before it" in told.out
    assert "held for 5 min more because: answered with status 429" in told.out
    assert "go on with: uttu crawl shop.py" in told.out
    assert "the next one" in why(f"{HOST}/1").out


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://else.example/", "out of scope: outside the allowed domains (shop.example)"),
        (f"{HOST}/a/b/a/b/a/b/", "it looks like a trap: a path that repeats itself"),
        (f"{HOST}/private/x", "the site's robots.txt forbids it"),
        (f"{HOST}/nowhere", "no page that was fetched led the spider to it; 6 pages are still to do"),
        (f"{HOST}/" + "x" * 3000, "out of scope: longer than 2000 characters"),
    ],
)
def test_unknown_and_why(why: Any, url: str, reason: str) -> None:
    told = why(url)
    assert told.code == 1
    assert "  unknown to the crawl shop" in told.out
    assert reason in told.out


def test_a_spelling_that_is_known(why: Any) -> None:
    assert f"but it knows {HOST}/gone" in why("http://www.shop.example/gone").out
    assert f"but it knows {HOST}/gone" in why(f"{HOST}/gone/").out
    assert json.loads(why(f"{HOST}/gone?x", "--json").out)["known_as"] == [f"{HOST}/gone"]


def test_flags_count(uttu: Uttu) -> None:
    make_crawl(flags={"domains": "else.example", "max_depth": 3, "max_pages_per_host": 3})
    assert "outside the allowed domains (else.example)" in uttu("why", f"{HOST}/nowhere").out
    told = uttu("why", "https://else.example/")
    assert "max_depth=3" in told.out
    assert "max_pages_per_host" in told.out


def test_a_spider_that_can_not_be_loaded_any_more(why: Any) -> None:
    Path("shop.py").write_text("1/0")
    told = why("https://else.example/")
    assert told.code == 1
    assert "no page that was fetched led the spider to it" in told.out
    assert "the spider's settings can't be read" in told.out


def test_the_latest_crawl_unless_one_is_named(uttu: Uttu) -> None:
    make_crawl("one")
    make_crawl("two", state=CrawlState.FINISHED)
    assert uttu("why", f"{HOST}/").err == "of two, the latest of 2 crawls here\n"
    told = uttu("why", f"{HOST}/", "--crawl", "one", "--json")
    assert told.err == ""
    assert json.loads(told.out)["crawl"] == "one"


def test_wrong_usage(uttu: Uttu) -> None:
    assert uttu("why").code == 2
    assert uttu("why", "no url").code == 2
    assert uttu("why", f"{HOST}/").code == 4


@pytest.mark.parametrize("path", ["/1", "/again"])
def test_a_crawl_that_stands_still(uttu: Uttu, path: str) -> None:
    make_crawl(state=CrawlState.PAUSED, reason=Reason("paused by the operator"))
    with supervised():
        assert uttu("why", HOST + path).out.endswith("the crawl is paused; go on with: uttu resume shop\n")
    make_crawl(state=CrawlState.STOPPING, reason=Reason("limit of 9 pages"))
    with supervised():
        assert "the crawl is stopping (limit of 9 pages), and starts no more pages" in uttu("why", HOST + path).out
    make_crawl(state=CrawlState.LIMITED, reason=Reason("limit of 9 pages"))
    assert uttu("why", HOST + path).out.endswith("(limited); go on with: uttu crawl shop.py --resume\n")
