"""Crawls as jobs: slice after slice to the end, in workflows, called off, and with bad input."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError
from kombu.exceptions import EncodeError

from tests.jobs.conftest import MakeWorkshop
from tests.jobs.crawl_jobs import Crawling, slices, until
from uttu.errors import ConfigError, SpiderError
from uttu.model.crawl import REVOKED, CrawlState
from uttu.testing.site import Site, SiteProcess

PAGES = 200
# At this pace the crawl takes some two or three slices.
SETTINGS = {"slice_seconds": 1.0, "visibility_seconds": 30.0}


@pytest.fixture(scope="module")
def site() -> Iterator[SiteProcess]:
    with SiteProcess(Site(pages=PAGES, links=8, latency=0.03)) as running:
        yield running


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, broker: str, redis_url: str, site: SiteProcess) -> Crawling:
    """A worker with three processes, on each broker. Results are on Redis: RabbitMQ's own know no chords."""
    workshop = workshops(broker=broker, backend=redis_url, include=["echo.py"], **SETTINGS)
    crawling = Crawling(workshop, site)
    crawling.worker = workshop.worker("-c", "3").pid
    return crawling


@pytest.fixture(autouse=True)
def anew(shop: Crawling) -> None:
    shop.forget()


def finished(**more: Any) -> dict[str, Any]:
    counts = {"pending": 0, "leased": 0, "delayed": 0, "done": PAGES, "dead": 0, "items": PAGES}
    return {"crawl": "pages", "state": "finished", "reason": "", **counts, "dead_kinds": {}, **more}


def numbers(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != "bytes"}


def number_of(shop: Crawling, result: Any) -> int:
    """The slice that a job is at."""
    return shop.facts().slices[result.id].number


def test_slice_after_slice_to_the_end(shop: Crawling) -> None:
    seen: list[dict[str, Any]] = []
    result = shop.crawl(output="out.jsonl").apply_async()

    def look() -> bool:
        meta = result.backend.get_task_meta(result.id)
        if meta["status"] == "PROGRESS" and meta["result"] not in seen:
            seen.append(meta["result"])
        return bool(meta["status"] == "SUCCESS")

    until(look, "the crawl is over")
    assert numbers(shop.get(result)) == finished()
    assert shop.fetched() == shop.every_page_once
    assert shop.rows() == shop.every_page_once
    assert number_of(shop, result) > 1, "it was not cut into slices"
    last = seen[-1]
    assert last["crawl"] == "pages"
    assert 0 < last["current"] <= last["total"] <= PAGES
    assert last["pages"] == last["items"] == last["current"]
    assert last["rate"] > 0


def test_a_finished_crawl_starts_anew(shop: Crawling) -> None:
    """Another call is another job."""
    assert numbers(shop.get(shop.crawl(output="out.jsonl").apply_async())) == finished()
    assert shop.fetched() == shop.every_page_once


def test_it_feeds_a_chain(shop: Crawling) -> None:
    """As the issue has it: crawl, export, tell someone."""
    work = chain(shop.crawl(), shop.task("uttu.export", "csv"), shop.task("echo.echo"))
    assert shop.get(work.apply_async()) == {"crawl": "pages", "file": "pages.csv", "items": PAGES}
    assert len((shop.workshop.folder / "pages.csv").read_text().splitlines()) == 1 + PAGES


def test_crawls_in_a_group_and_a_chord(shop: Crawling) -> None:
    small = {"max_pages": 20}
    crawls = [shop.crawl(shop.spider(name), settings=small) for name in ("one", "two")]
    both = shop.get(group(crawls).apply_async())
    assert [(each["crawl"], each["state"], each["done"]) for each in both] == [
        ("one", "limited", 20),
        ("two", "limited", 20),
    ]
    gathered = shop.get(chord(crawls, shop.task("echo.echo")).apply_async())
    assert [each["crawl"] for each in gathered] == ["one", "two"]


def test_arguments_and_settings(shop: Crawling) -> None:
    summary = shop.get(shop.crawl(arguments={"key": 1}, settings={"max_pages": 5, "concurrency": 1}).apply_async())
    assert summary["crawl"].startswith("pages-")
    assert (summary["state"], summary["reason"], summary["done"]) == ("limited", "limit of 5 pages", 5)


def test_a_limit_of_time_is_one_for_all_slices(shop: Crawling) -> None:
    result = shop.crawl(settings={"max_seconds": 6, "delay": 0.2}, fresh=True).apply_async()
    summary = shop.get(result)
    assert (summary["state"], summary["reason"]) == ("limited", "limit of 6 seconds")
    assert number_of(shop, result) > 1


def test_several_workers_take_part(shop: Crawling) -> None:
    result = shop.crawl(output="out.jsonl", workers=2, fresh=True).apply_async()
    until(lambda: len(slices(shop.worker)) == 2, "two processes work on the crawl")
    assert numbers(shop.get(result)) == finished()
    assert shop.fetched() == shop.every_page_once
    assert shop.rows() == shop.every_page_once


def test_copy_of_a_message_is_dropped(shop: Crawling) -> None:
    """The same message a second time while the first is at work, and a third time when all is over."""
    result = shop.crawl(output="out.jsonl").apply_async()
    shop.until_fetched(20)
    shop.crawl(output="out.jsonl").apply_async(task_id=result.id)
    assert numbers(shop.get(result)) == finished()
    shop.crawl(output="out.jsonl").apply_async(task_id=result.id)
    until(lambda: not slices(shop.worker), "all copies are gone")
    assert shop.get(shop.task("echo.echo", 1).apply_async()) == 1
    assert shop.fetched() == shop.every_page_once
    assert shop.rows() == shop.every_page_once


def test_an_operator_stops_it(shop: Crawling) -> None:
    result = shop.crawl(fresh=True).apply_async()
    shop.until_fetched(20)
    until(lambda: shop.workshop.uttu("stop", "pages").returncode == 0, "the crawl is told to stop")
    summary = shop.get(result)
    assert (summary["state"], summary["reason"]) == ("stopped", "stopped by the operator")
    assert summary["leased"] == 0 < summary["pending"]
    assert shop.facts().state is CrawlState.STOPPED
    # Who begins it again, goes on with it.
    assert numbers(shop.get(shop.crawl().apply_async())) == finished()
    assert shop.fetched() == shop.every_page_once


@pytest.mark.parametrize("terminate", [False, True])
def test_it_is_called_off(shop: Crawling, terminate: bool) -> None:
    result = shop.crawl(fresh=True).apply_async()
    shop.until_fetched(20)
    result.revoke(terminate=terminate)
    with pytest.raises(TaskRevokedError):
        shop.get(result)
    until(lambda: shop.facts().state is CrawlState.STOPPED, "the crawl has stopped")
    assert shop.facts().reason == REVOKED
    until(lambda: not slices(shop.worker), "nobody works on it")
    assert shop.leased() == set()
    assert len(shop.fetched()) < PAGES


def test_a_person_runs_it_already(shop: Crawling) -> None:
    """The job takes part in their crawl, and its result is theirs. The pace is such that it is not over before."""
    shop.workshop.start("crawl", "pages.py", "--fresh", "-o", "out.jsonl", "-s", "delay=0.2")
    shop.until_fetched(5)
    result = shop.crawl().apply_async()
    until(lambda: len(shop.status()["workers"]) == 2, "the job takes part")
    assert shop.workshop.uttu("rate", "pages", shop.site.url, "--delay", "0").returncode == 0
    assert numbers(shop.get(result)) == finished()
    assert shop.fetched() == shop.every_page_once
    assert shop.rows() == shop.every_page_once


def test_a_pause_lasts_over_slices(shop: Crawling) -> None:
    """The pace is such that the crawl can't be over before the workers look, which they do every second."""
    result = shop.crawl(fresh=True, settings={"delay": 0.2}).apply_async()
    shop.until_fetched(5)
    until(lambda: shop.workshop.uttu("pause", "pages").returncode == 0, "the crawl is paused")
    heard = number_of(shop, result)
    until(lambda: number_of(shop, result) > heard, "the slice that was to hear of it is over")
    assert shop.leased() == set()
    fetched, slice_ = len(shop.records()), number_of(shop, result)
    until(lambda: number_of(shop, result) > slice_ + 1, "two slices more have begun")
    assert len(shop.records()) == fetched
    assert shop.workshop.uttu("rate", "pages", shop.site.url, "--delay", "0").returncode == 0
    until(lambda: shop.workshop.uttu("resume", "pages").returncode == 0, "the crawl goes on")
    assert numbers(shop.get(result)) == finished()
    assert shop.fetched() == shop.every_page_once


def test_on_a_store_that_machines_share(shop: Crawling, redis_url: str) -> None:
    name = f"p{uuid.uuid4().hex[:8]}"
    result = shop.crawl(shop.spider(name), settings={"frontier": redis_url}, workers=2).apply_async()
    assert numbers(shop.get(result)) == finished(crawl=name)
    assert shop.fetched() == shop.every_page_once
    told = shop.get(shop.task("uttu.export", name, "csv", frontier=redis_url).apply_async())
    assert told == {"crawl": name, "file": f"{name}.csv", "items": PAGES}


def test_a_spider_that_is_not_there(shop: Crawling) -> None:
    with pytest.raises(SpiderError, match=r"There is no spider file nowhere\.py on .+, in the worker's folder "):
        shop.get(shop.crawl("nowhere.py").apply_async())


def test_a_spider_that_can_not_be_loaded(shop: Crawling) -> None:
    (shop.workshop.folder / "broken.py").write_text("spider =\n")
    with pytest.raises(SpiderError, match=r"broken\.py has a syntax error in line 1"):
        shop.get(shop.crawl("broken.py").apply_async())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"settings": {"dealy": 1}}, "unknown setting 'dealy'; did you mean 'delay'"),
        ({"output": "-"}, "has no standard output"),
        ({"output": "out.nothing"}, "out.nothing"),
        ({"arguments": ["a"]}, "arguments"),
    ],
)
def test_wrong_arguments(shop: Crawling, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        shop.get(shop.crawl(**wrong).apply_async())


def test_arguments_that_can_not_be_sent(shop: Crawling) -> None:
    with pytest.raises(EncodeError, match="object"):
        shop.crawl(arguments={"key": object()}).apply_async()
