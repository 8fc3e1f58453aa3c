"""``uttu new``: the spider it writes works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Uttu
from uttu.spider.loader import load_spider
from uttu.testing.site import SiteProcess


def test_the_spider_crawls(uttu: Uttu, site: SiteProcess) -> None:
    told = uttu("new", "shop", site.url + "shop/")
    assert told.code == 0
    assert "uttu crawl shop.py -o shop.jsonl" in told.out
    done = uttu("crawl", "shop.py", "-o", "shop.jsonl", "-s", "delay=0", "-s", "per_host=8", "--limit", "25")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in Path("shop.jsonl").read_text().splitlines()]
    assert len(rows) == 25
    assert {"url": site.url + "shop/", "title": "All products"} in rows


def test_it_stays_on_its_site(uttu: Uttu) -> None:
    uttu("new", "mine", "www.Example.org/a?b#c")
    spider = load_spider(Path("mine.py"))
    assert spider.start_urls == ("https://www.example.org/a?b",)
    assert spider.settings["domains"] == ["example.org"]


def test_a_start_is_not_needed(uttu: Uttu) -> None:
    assert uttu("new", "my-first.spider").code == 0
    assert load_spider(Path("my-first.spider.py")).start_urls == ("https://example.org/",)


def test_nothing_is_overwritten(uttu: Uttu) -> None:
    Path("shop.py").write_text("mine")
    told = uttu("new", "shop.py")
    assert told.code == 2
    assert "shop.py exists already" in told.err
    assert Path("shop.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["a b", "../shop", "", "/tmp/shop", ".hidden", "-x=", "json", "uttu", "rich", "a/b"])
def test_names_that_can_not_be(uttu: Uttu, name: str) -> None:
    told = uttu("new", "--", name)
    assert told.code == 2
    assert list(Path().iterdir()) == []


def test_a_start_that_is_no_url(uttu: Uttu) -> None:
    told = uttu("new", "shop", "ftp://example.org/")
    assert told.code == 2
    assert "not a web URL" in told.err
    assert not Path("shop.py").exists()


def test_a_folder_that_can_not_be_written(uttu: Uttu) -> None:
    assert uttu("new", "x" * 300).code == 1
