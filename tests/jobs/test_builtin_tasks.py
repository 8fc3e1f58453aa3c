"""The ready-made tasks beside ``crawl``: fetch, export, push. On the broker of the folder's own."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

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
        ("no url", {}, "not a web URL"),
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
        ("pagse", "x.csv", UttuError, "There is no crawl 'pagse' here, but there is: pages"),
        ("pages", "x.nothing", UttuError, "x.nothing"),
        ("pages", "pages.py/x.csv", UttuError, "pages.py"),
        ({"state": "finished"}, "csv", ConfigError, "Give a crawl's name, or the summary"),
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
    with pytest.raises(UttuError, match="There is no crawl 'nothing'"):
        shop.get(shop.task("uttu.push", "nothing", shop.site.url).apply_async())


@pytest.fixture
def here(shop: Crawling, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls a task in this process, whose working directory is not the app's folder, and which starts no other."""

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    shop.workshop.app.loader.import_default_modules()
    return lambda name, *args, **kwargs: shop.workshop.app.tasks[name](*args, **kwargs)


def test_they_work_in_the_process_of_the_worker_and_in_the_folder_of_the_app(shop: Crawling, here: Any) -> None:
    assert here("uttu.fetch", f"{shop.site.url}p/1")["status"] == 200
    assert here("uttu.export", "pages.py", "own.jsonl") == {"crawl": "pages", "file": "own.jsonl", "items": 10}
    assert len((shop.workshop.folder / "own.jsonl").read_text().splitlines()) == 10
    told = here("uttu.push", "pages.py", [f"{shop.site.url}p/0"])
    assert told == {"crawl": "pages", "new": 0, "known": 1, "bad": 0}


def test_what_is_returned_is_what_the_command_prints(shop: Crawling, here: Any) -> None:
    found = here("uttu.fetch", f"{shop.site.url}odd/redirect/to?url=/p/1")
    assert list(found) == ["url", "status", "ok", "via", "headers", "elapsed", "version", "size", "text"]
    assert found["via"] == [f"{shop.site.url}odd/redirect/to?url=/p/1"]
    assert all(isinstance(pair, list) for pair in found["headers"])


def test_a_file_of_the_settings_is_looked_for_in_the_folder_of_the_app(shop: Crawling, here: Any) -> None:
    with pytest.raises(ConfigError, match=str(shop.workshop.folder / "none.pem")):
        here("uttu.fetch", f"{shop.site.url}p/1", settings={"ca_file": "none.pem"})


def test_exports_of_several_threads_to_one_file_wait_for_each_other(shop: Crawling, here: Any) -> None:
    """Locks on files belong to a process, so threads would write at the same time."""
    for target in ("shared.jsonl", "shared.db"):
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda _, target=target: here("uttu.export", "pages", target), range(8)))
        assert [each["items"] for each in done] == [10] * 8
    assert len((shop.workshop.folder / "shared.jsonl").read_text().splitlines()) == 10


def test_they_can_be_called_where_a_loop_runs(shop: Crawling, here: Any) -> None:
    async def task() -> Any:
        return here("uttu.push", "pages", f"{shop.site.url}p/0")

    assert asyncio.run(task())["known"] == 1


def test_a_pool_without_threads_is_refused(shop: Crawling, here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greenlets in place of threads would wait forever for the event loop."""
    monkey = ModuleType("gevent.monkey")
    monkey.is_module_patched = lambda name: name == "threading"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gevent.monkey", monkey)
    with pytest.raises(ConfigError, match="--pool prefork, threads or solo"):
        here("uttu.push", "pages", f"{shop.site.url}p/0")
