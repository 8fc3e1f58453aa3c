"""``--frontier``: where crawls are kept, by flag, setting and environment; in a folder and on a server."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import HOST, SPIDER, Uttu, depot_here, make_crawl, supervised
from uttu.cli.foreground import ForegroundSpec
from uttu.clients.addresses import mask_password
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.model import Request
from uttu.model.crawl import CrawlState, Reason, ReasonKind, WorkerReport
from uttu.model.facts import CrawlFacts
from uttu.spider import Spider
from uttu.testing.site import SiteProcess

COMMANDS = [("status",), ("status", "shop"), ("why", f"{HOST}/"), ("retry", "shop"), ("export",)]


@pytest.fixture
def elsewhere(uttu: Uttu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A crawl in another folder, and its URL."""
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    make_crawl()
    monkeypatch.chdir(tmp_path)
    return "sqlite:there"


@pytest.mark.parametrize("words", COMMANDS)
def test_the_crawls_of_another_folder(uttu: Uttu, elsewhere: str, words: tuple[str, ...]) -> None:
    found = uttu(*words, "--frontier", elsewhere)
    assert found.code == 0, found.err
    assert "shop" in found.out + found.err
    assert uttu(*words).code == (0 if words == ("status",) else 4)


def test_the_setting_and_the_environment(
    uttu: Uttu, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert uttu("status", "shop").err == (
        "uttu: There is no crawl here: none was started in this folder. Start one with: uttu crawl FILE\n"
    )
    Path("uttu.toml").write_text(f'frontier = "{elsewhere}"')
    assert uttu("status", "shop").code == 0
    monkeypatch.setenv("UTTU_FRONTIER", "sqlite:nowhere")
    assert uttu("status", "shop").code == 4
    assert uttu("status", "shop", "--frontier", elsewhere).code == 0
    assert not Path("nowhere").exists()


def test_shown_commands_say_where_unless_the_settings_do(uttu: Uttu, elsewhere: str) -> None:
    told = uttu("status", "shop", "--frontier", elsewhere)
    assert "uttu crawl there/shop.py --frontier sqlite:there\n" in told.out
    told = uttu("why", f"{HOST}/gone", "--frontier", elsewhere)
    assert f"uttu retry shop --url {HOST}/gone --frontier sqlite:there\n" in told.out
    Path("uttu.toml").write_text(f'frontier = "{elsewhere}"')
    assert "uttu crawl there/shop.py\n" in uttu("status", "shop").out


@pytest.mark.parametrize("url", ["amqp://me:secret@localhost", "there", "http://me:secret@x"])
def test_what_there_is_not(uttu: Uttu, url: str) -> None:
    told = uttu("status", "--frontier", url)
    assert told.code == 3
    assert told.err.startswith(f"uttu: Unknown frontier {mask_password(url)!r}. Use one of sqlite:FOLDER, redis://")
    assert "secret" not in told.err


def test_a_package_that_is_not_installed(uttu: Uttu, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "redis" or name.startswith("uttu.frontier.red")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    told = uttu("status", "--frontier", "redis://me:secret@localhost")
    assert told.code == 3
    assert told.err == "uttu: redis://me:***@localhost needs the \"redis\" extra: pip install 'uttu[redis]'\n"


def test_a_crawl_and_its_processes_know_where(uttu: Uttu, site: SiteProcess) -> None:
    Path("pages.py").write_text(f"""
from uttu import Spider
spider = Spider("pages", start="{site.url}", private=True, robots=False, delay=0, per_host=0)
@spider.page
def each(page):
    yield {{"url": page.url}}
    yield page.follow_all("a[href*='/p/']")
""")
    words = ("crawl", "pages.py", "--workers", "2", "-s", "max_depth=2", "-o", "out.jsonl")
    told = uttu(*words, "--frontier", "sqlite:there")
    assert told.code == 0, told.err
    assert Path("there/.uttu/crawls/pages.db").is_file()
    assert not Path(".uttu/crawls").exists()
    assert Path("out.jsonl").read_text()
    found = json.loads(uttu("status", "pages", "--frontier", "sqlite:there", "--json").out)
    assert found["state"] == CrawlState.FINISHED
    assert len(found["workers"]) == 2


def test_where_a_crawl_is_kept_is_not_noted_in_it(uttu: Uttu) -> None:
    url = "redis://me:secret@localhost"
    plan = ForegroundSpec(file=Path("shop.py"), flags={"frontier": url, "delay": "2"})
    assert plan.noted_flags == {"delay": "2"}
    assert not any("secret" in word for word in plan.worker_command())


def test_a_worker_that_joins_has_the_settings_of_the_crawl_but_for_its_own(uttu: Uttu) -> None:
    spider = Spider("shop", delay=1, retries=1)
    facts = CrawlFacts(flags={"delay": "2", "max_pages": 5}, arguments={"q": "a"})
    settings = ForegroundSpec(file=Path("shop.py"), flags={"delay": "3"}).joining(spider, facts)
    assert (settings.delay, settings.max_pages, settings.retries) == (3.0, 5, 1)
    assert spider.args == {"q": "a"}


def test_a_worker_says_what_to_do_where_there_is_nothing_to_take_part_in(uttu: Uttu) -> None:
    Path("shop.py").write_text(SPIDER)
    told = uttu("worker", "shop.py", "--frontier", "sqlite:there")
    assert told.code == 4
    assert told.err == (
        "uttu: There is no crawl 'shop' at sqlite:there to join. "
        "Start it with: uttu crawl shop.py --frontier sqlite:there\n"
    )
    make_crawl(state=CrawlState.FINISHED)
    told = uttu("worker", "shop.py")
    assert told.code == 1
    assert told.err == "uttu: Crawl 'shop' is not running (finished). Start it with: uttu crawl shop.py\n"


def test_a_crawl_that_was_moved_is_not_run_again_by_accident(uttu: Uttu) -> None:
    make_crawl(reason=Reason("redis://localhost", ReasonKind.MOVED))
    told = uttu("crawl", "shop.py")
    assert told.code == 1
    assert "was moved to redis://localhost. Resume it there, or start again here with --fresh" in told.err
    told = uttu("status", "shop")
    assert told.out.startswith("stopped  shop (moved to redis://localhost)\n")
    assert "go on" not in told.out


def test_a_paused_crawl(uttu: Uttu) -> None:
    make_crawl(state=CrawlState.PAUSED, seeded=True)
    with supervised():
        told = uttu("status", "shop")
    assert told.out.startswith("paused  shop\n")
    assert "the operator, who paused it" in told.out
    assert "uttu resume shop\n" in told.out
    assert [line.split()[:2] for line in told.out.splitlines() if "4711" in line] == [["w1", "paused"]]
    told = uttu("status", "shop")
    assert told.out.startswith("paused  shop\n")
    assert "uttu crawl shop.py\n" in told.out


def test_workers_that_are_gone_are_not_all_listed(uttu: Uttu) -> None:
    make_crawl("shop")

    async def report() -> None:
        store = await depot_here().open("shop", Rules())
        for number in range(9):
            await store.ledger.report(f"gone{number}", msgspec.json.encode(WorkerReport(pid=number)))
        await store.frontier.close()

    asyncio.run(report())
    told = uttu("status", "shop")
    assert len([line for line in told.out.splitlines() if " gone " in line]) == 5
    assert "and 5 more that are gone" in told.out


class Fleet:
    """A crawl on a server, without a supervisor."""

    def __init__(self, url: str, crawl: str) -> None:
        self.url, self.crawl = url, crawl

    def make(self, *, worker: bool, state: CrawlState = CrawlState.RUNNING) -> None:
        async def work() -> None:
            catalog = await RedisCatalog.connect(self.url)
            store: CrawlStore = await catalog.create(self.crawl, Rules())
            await store.frontier.put([Request(url=f"{HOST}/")])
            await store.ledger.note(spider=self.crawl, file="/other/machine/shop.py", seeded=True, state=state)
            if worker:
                await store.ledger.report(
                    "box-1-a", msgspec.json.encode(WorkerReport(pid=17, pages=3, in_flight=2, held=4))
                )
            await store.frontier.close()
            await catalog.close()

        asyncio.run(work())

    def remove(self) -> None:
        async def work() -> None:
            catalog = await RedisCatalog.connect(self.url)
            await catalog.remove(self.crawl)
            await catalog.close()

        asyncio.run(work())


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    fleet = Fleet(redis_url, f"test-{secrets.token_hex(6)}")
    yield fleet
    fleet.remove()


def test_a_fleet_without_a_supervisor_runs_while_a_worker_reports(uttu: Uttu, fleet: Fleet) -> None:
    fleet.make(worker=True, state=CrawlState.RUNNING)
    told = uttu("status", fleet.crawl, "--frontier", fleet.url)
    assert told.code == 0, told.err
    assert told.out.startswith(f"running  {fleet.crawl}\n")
    (row,) = [line.split() for line in told.out.splitlines() if line.startswith("box-1-a")]
    assert row[:7] == ["box-1-a", "working", "now", "17", "2", "4", "3"]
    data = json.loads(uttu("status", fleet.crawl, "--frontier", fleet.url, "--json").out)
    assert (data["alive"], data["supervised"], data["workers"]["box-1-a"]["held"]) == (True, False, 4)


def test_a_fleet_without_anybody_was_cut_short(uttu: Uttu, fleet: Fleet) -> None:
    fleet.make(worker=False, state=CrawlState.RUNNING)
    told = uttu("status", fleet.crawl, "--frontier", fleet.url)
    assert told.out.startswith(f"cut short  {fleet.crawl}\n")
    assert f"uttu crawl /other/machine/shop.py --frontier {fleet.url}\n" in told.out


def test_a_crawl_of_a_fleet_by_its_file_on_this_machine(uttu: Uttu, fleet: Fleet) -> None:
    fleet.make(worker=False, state=CrawlState.STOPPED)
    Path("shop.py").write_text(SPIDER)
    told = uttu("status", "shop.py", "--frontier", fleet.url)
    assert told.code == 0, told.err
    assert told.err.endswith(f"of {fleet.crawl}\n")
