"""The ready-made tasks beside ``crawl``: fetch, export, push. On the broker of the folder's own."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from tests.jobs.conftest import MakeWorkshop
from tests.jobs.crawl_jobs import Crawling
from uttu.errors import ConfigError, UttuError
from uttu.testing.site import Site, SiteProcess


@pytest.fixture(scope="module")
def site() -> Iterator[SiteProcess]:
    with SiteProcess(Site(pages=20, links=8)) as running:
        yield running


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, site: SiteProcess) -> Crawling:
    """A folder with a crawl that was limited to ten pages."""
    workshop = workshops(include=["echo.py"])
    crawling = Crawling(workshop, site)
    workshop.worker("-c", "2")
    summary = crawling.get(crawling.crawl(settings={"max_pages": 10}).apply_async())
    assert (summary["state"], summary["done"], summary["items"]) == ("limited", 10, 10)
    return crawling


def test_fetch(shop: Crawling) -> None:
    response = shop.get(shop.task("uttu.fetch", f"{shop.site.url}p/1").apply_async())
    assert (response["status"], response["ok"], response["size"]) == (200, True, 6000)
    assert response["text"].startswith("<!doctype html>")
    assert ["content-type", "text/html; charset=utf-8"] in response["headers"]
    assert response["elapsed"] > 0
    assert "base64" not in response


def test_fetch_what_is_no_text(shop: Crawling) -> None:
    response = shop.get(shop.task("uttu.fetch", f"{shop.site.url}sitemap-shop.xml.gz").apply_async())
    assert response["text"] is None
    assert base64.b64decode(response["base64"]).startswith(b"\x1f\x8b")


def test_fetch_what_is_not_there(shop: Crawling) -> None:
    """That is an answer as well."""
    response = shop.get(shop.task("uttu.fetch", f"{shop.site.url}nowhere").apply_async())
    assert (response["status"], response["ok"]) == (404, False)


@pytest.mark.parametrize(
    ("url", "settings", "said"),
    [
        ("http://127.0.0.1:9/", {}, "127.0.0.1:9"),
        ("no url", {}, "no URL of the web"),
        ("http://127.0.0.1:9/", {"dealy": 1}, "did you mean 'delay'"),
        ("{site}p/1", {"max_body": 100}, "100"),
    ],
)
def test_fetch_fails(shop: Crawling, url: str, settings: dict[str, object], said: str) -> None:
    with pytest.raises(UttuError, match=said):
        shop.get(shop.task("uttu.fetch", url.replace("{site}", shop.site.url), settings=settings).apply_async())


@pytest.mark.parametrize(
    ("to", "file"), [("jsonl", "pages.jsonl"), ("items.csv", "items.csv"), ("parquet", "pages.parquet")]
)
def test_export(shop: Crawling, to: str, file: str) -> None:
    """By the crawl's name, by its spider file, and by its summary."""
    for crawl in ("pages", "pages.py", {"crawl": "pages", "state": "limited"}):
        told = shop.get(shop.task("uttu.export", crawl, to).apply_async())
        assert (told["crawl"], told["items"]) == ("pages", 10)
    assert told["file"] == file
    assert (shop.workshop.folder / file).stat().st_size > 0


@pytest.mark.parametrize(
    ("crawl", "to", "kind", "said"),
    [
        ("pagse", "x.csv", UttuError, "there is no crawl 'pagse' here; there is: pages"),
        ("pages", "x.nothing", UttuError, "x.nothing"),
        ("pages", "pages.py/x.csv", UttuError, "pages.py"),
        ({"state": "finished"}, "csv", ConfigError, "give a crawl's name, or the summary"),
    ],
)
def test_export_fails(shop: Crawling, crawl: object, to: str, kind: type[UttuError], said: str) -> None:
    with pytest.raises(kind, match=said):
        shop.get(shop.task("uttu.export", crawl, to).apply_async())


def test_push(shop: Crawling) -> None:
    urls = [f"{shop.site.url}shop/product/1", "what is this", f"{shop.site.url}p/0"]
    told = shop.get(shop.task("uttu.push", "pages", urls).apply_async())
    assert told == {"crawl": "pages", "new": 1, "known": 1, "bad": 1}


def test_push_fails(shop: Crawling) -> None:
    with pytest.raises(UttuError, match="there is no crawl 'nothing'"):
        shop.get(shop.task("uttu.push", "nothing", shop.site.url).apply_async())
