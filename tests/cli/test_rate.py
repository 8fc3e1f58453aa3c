"""``uttu rate``: the pace of one host, set by hand."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Uttu, make_crawl
from tests.cli.statuses import in_store, standing
from tests.crawl.conftest import Project
from tests.crawl.conftest import project as project
from uttu.model import Pace
from uttu.model.crawl import CrawlState
from uttu.model.lease import LaneState
from uttu.testing.contracts.store import list_lanes
from uttu.testing.site import Site, SiteProcess, gaps


def lane(name: str = "shop.example") -> LaneState:
    found = in_store(lambda store: list_lanes(store.inspector))
    return next(each for each in found if each.name == name)


def test_a_host_is_pinned_and_let_go(uttu: Uttu) -> None:
    make_crawl()
    own = lane().pace
    told = uttu("rate", "shop", "shop.example", "--delay", "2.5")
    assert told.code == 0
    again = "uttu rate shop shop.example --reset"
    assert told.out == f"shop.example gets a request every 2.5 s. Undo it with: {again}\n"
    assert (lane().pace, lane().pinned) == (Pace(2.5, 1), True)
    assert "every 2.5 s" in uttu("top", "shop").out
    told = uttu(*again.split()[1:])
    assert told.code == 0
    assert told.out == "shop.example goes at its own pace again\n"
    assert (lane().pace, lane().pinned) == (own, False)
    assert own != Pace(2.5, 1)
    assert standing().state == CrawlState.STOPPED


@pytest.mark.parametrize(
    "host",
    ["shop.example", "SHOP.example", "shop.example:443", "shop.example:80", "https://shop.example/some/page?x=1"],
)
def test_a_host_is_named_in_many_ways(uttu: Uttu, host: str) -> None:
    make_crawl()
    told = uttu("rate", "shop", host, "--delay", "0")
    assert told.out.startswith("shop.example gets one request at a time, without a delay. Undo")
    assert lane().pinned


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "http://127.0.0.1:8000/", "[::1]:8000", "other.example:8443"])
def test_a_port_that_is_not_the_scheme_s_belongs_to_the_host(uttu: Uttu, host: str) -> None:
    make_crawl()
    expected = host.removeprefix("http://").removesuffix("/")
    assert uttu("rate", "shop", host, "--delay", "1").out.startswith(f"{expected} gets a request every 1 s")


def test_what_can_not_be(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.FINISHED)
    assert uttu("rate", "shop", "shop.example").code == 2
    assert uttu("rate", "shop", "shop.example", "--delay", "1", "--reset").code == 2
    assert uttu("rate", "shop", "shop.example", "--delay", "-1").code == 2
    assert uttu("rate", "shop", "no host", "--delay", "1").code == 2
    assert uttu("rate", "nope", "shop.example", "--delay", "1").code == 4
    told = uttu("rate", "shop", "shop.example", "--delay", "1")
    assert (told.code, told.err) == (
        1,
        "uttu: crawl 'shop' has finished; a new one starts with: uttu crawl shop.py\n",
    )


def test_no_gap_is_shorter_than_what_was_set(project: Project) -> None:
    with SiteProcess(Site(pages=200)) as site:
        start = site.url + "p/0"
        assert project.run("crawl", "spider.py", "--limit", "5", START=start).returncode == 0
        before = len(site.records())
        done = project.run("rate", "pages", site.url, "--delay", "0.2")
        assert done.returncode == 0, done.stderr
        done = project.run("crawl", "spider.py", "--resume", "--limit", "15", "--workers", "2", START=start)
        assert done.returncode == 0, done.stderr
        (slow,) = gaps(site.records()[before:]).values()
        assert len(slow) == 9
        assert min(slow) >= 0.2
