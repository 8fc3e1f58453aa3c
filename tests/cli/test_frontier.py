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

from tests.cli.conftest import HOST, SPIDER, Weft, depot_here, make_crawl, supervised
from weft.cli.foreground import Plan
from weft.drivers.urls import masked
from weft.engine.states import State
from weft.engine.stats import Report
from weft.frontier.base import Rules
from weft.frontier.depot import Store
from weft.frontier.redis.depot import RedisDepot
from weft.model import Request
from weft.spider import Spider
from weft.testing.site import SiteProcess

COMMANDS = [("status",), ("status", "shop"), ("why", f"{HOST}/"), ("retry", "shop"), ("export",)]


@pytest.fixture
def elsewhere(weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A crawl in another folder, and its URL."""
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    make_crawl()
    monkeypatch.chdir(tmp_path)
    return "sqlite:there"


@pytest.mark.parametrize("words", COMMANDS)
def test_the_crawls_of_another_folder(weft: Weft, elsewhere: str, words: tuple[str, ...]) -> None:
    found = weft(*words, "--frontier", elsewhere)
    assert found.code == 0, found.err
    assert "shop" in found.out + found.err
    assert weft(*words).code == (0 if words == ("status",) else 4)


def test_the_setting_and_the_environment(
    weft: Weft, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert weft("status", "shop").err == (
        "weft: there is no crawl here: none was started in this folder. Start one with: weft crawl FILE\n"
    )
    Path("weft.toml").write_text(f'frontier = "{elsewhere}"')
    assert weft("status", "shop").code == 0
    monkeypatch.setenv("WEFT_FRONTIER", "sqlite:nowhere")
    assert weft("status", "shop").code == 4
    assert weft("status", "shop", "--frontier", elsewhere).code == 0
    assert not Path("nowhere").exists()


def test_shown_commands_say_where_unless_the_settings_do(weft: Weft, elsewhere: str) -> None:
    told = weft("status", "shop", "--frontier", elsewhere)
    assert "weft crawl there/shop.py --frontier sqlite:there\n" in told.out
    told = weft("why", f"{HOST}/gone", "--frontier", elsewhere)
    assert f"weft retry shop --url {HOST}/gone --frontier sqlite:there\n" in told.out
    Path("weft.toml").write_text(f'frontier = "{elsewhere}"')
    assert "weft crawl there/shop.py\n" in weft("status", "shop").out


@pytest.mark.parametrize("url", ["amqp://me:secret@localhost", "there", "http://me:secret@x"])
def test_what_there_is_not(weft: Weft, url: str) -> None:
    told = weft("status", "--frontier", url)
    assert told.code == 3
    assert told.err.startswith(f"weft: there is no frontier {masked(url)!r}; write one of sqlite:FOLDER, redis://")
    assert "secret" not in told.err


def test_a_package_that_is_not_installed(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "redis" or name.startswith("weft.frontier.red")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    told = weft("status", "--frontier", "redis://me:secret@localhost")
    assert told.code == 3
    assert told.err == "weft: redis://me:***@localhost needs a package more: pip install weft[redis]\n"


def test_a_crawl_and_its_processes_know_where(weft: Weft, site: SiteProcess) -> None:
    Path("pages.py").write_text(f"""
from weft import Spider
spider = Spider("pages", start="{site.url}", private=True, robots=False, delay=0, per_host=0)
@spider.page
def each(page):
    yield {{"url": page.url}}
    yield page.follow_all("a[href*='/p/']")
""")
    words = ("crawl", "pages.py", "--workers", "2", "-s", "max_depth=2", "-o", "out.jsonl")
    told = weft(*words, "--frontier", "sqlite:there")
    assert told.code == 0, told.err
    assert Path("there/.weft/crawls/pages.db").is_file()
    assert not Path(".weft/crawls").exists()
    assert Path("out.jsonl").read_text()
    found = json.loads(weft("status", "pages", "--frontier", "sqlite:there", "--json").out)
    assert found["state"] == State.FINISHED
    assert len(found["workers"]) == 2


def test_where_a_crawl_is_kept_is_not_noted_in_it(weft: Weft) -> None:
    url = "redis://me:secret@localhost"
    plan = Plan(file=Path("shop.py"), flags={"frontier": url, "delay": "2"})
    assert plan.noted_flags == {"delay": "2"}
    assert not any("secret" in word for word in plan.worker_command())


def test_a_worker_that_joins_has_the_settings_of_the_crawl_but_for_its_own(weft: Weft) -> None:
    spider = Spider("shop", delay=1, retries=1)
    facts = {"flags": '{"delay":"2","max_pages":5}', "arguments": '{"q":"a"}'}
    settings = Plan(file=Path("shop.py"), flags={"delay": "3"}).joining(spider, facts)
    assert (settings.delay, settings.max_pages, settings.retries) == (3.0, 5, 1)
    assert spider.args == {"q": "a"}


def test_a_worker_says_what_to_do_where_there_is_nothing_to_take_part_in(weft: Weft) -> None:
    Path("shop.py").write_text(SPIDER)
    told = weft("worker", "shop.py", "--frontier", "sqlite:there")
    assert told.code == 4
    assert told.err == (
        "weft: there is no crawl 'shop' at sqlite:there to take part in; "
        "start it with: weft crawl shop.py --frontier sqlite:there\n"
    )
    make_crawl(state=State.FINISHED)
    told = weft("worker", "shop.py")
    assert told.code == 1
    assert told.err == "weft: crawl 'shop' is not running (finished); start it with: weft crawl shop.py\n"


def test_a_crawl_that_was_moved_is_not_run_again_by_accident(weft: Weft) -> None:
    make_crawl(reason="moved to redis://localhost")
    told = weft("crawl", "shop.py")
    assert told.code == 1
    assert "was moved to redis://localhost: go on with it there, or start again here with --fresh" in told.err
    told = weft("status", "shop")
    assert told.out.startswith("stopped  shop (moved to redis://localhost)\n")
    assert "go on" not in told.out


def test_a_paused_crawl(weft: Weft) -> None:
    make_crawl(state=State.PAUSED, seeded="yes")
    with supervised():
        told = weft("status", "shop")
    assert told.out.startswith("paused  shop\n")
    assert "the operator, who paused it" in told.out
    assert "weft resume shop\n" in told.out
    assert [line.split()[:2] for line in told.out.splitlines() if "4711" in line] == [["w1", "paused"]]
    told = weft("status", "shop")
    assert told.out.startswith("paused  shop\n")
    assert "weft crawl shop.py\n" in told.out


def test_workers_that_are_gone_are_not_all_listed(weft: Weft) -> None:
    make_crawl("shop")

    async def report() -> None:
        store = await depot_here().open("shop", Rules())
        for number in range(9):
            await store.ledger.report(f"gone{number}", msgspec.json.encode(Report(pid=number)))
        await store.frontier.close()

    asyncio.run(report())
    told = weft("status", "shop")
    assert len([line for line in told.out.splitlines() if " gone " in line]) == 5
    assert "and 5 more that are gone" in told.out


class Fleet:
    """A crawl on a server, without a supervisor."""

    def __init__(self, url: str, crawl: str) -> None:
        self.url, self.crawl = url, crawl

    def make(self, *, worker: bool, **facts: str) -> None:
        async def work() -> None:
            depot = await RedisDepot.connect(self.url)
            store: Store = await depot.create(self.crawl, Rules())
            await store.frontier.put([Request(url=f"{HOST}/")])
            await store.ledger.note(spider=self.crawl, file="/other/machine/shop.py", seeded="yes", **facts)
            if worker:
                await store.ledger.report("box-1-a", msgspec.json.encode(Report(pid=17, pages=3, in_flight=2, held=4)))
            await store.frontier.close()
            await depot.close()

        asyncio.run(work())

    def remove(self) -> None:
        async def work() -> None:
            depot = await RedisDepot.connect(self.url)
            await depot.remove(self.crawl)
            await depot.close()

        asyncio.run(work())


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    fleet = Fleet(redis_url, f"test-{secrets.token_hex(6)}")
    yield fleet
    fleet.remove()


def test_a_fleet_without_a_supervisor_runs_while_a_worker_reports(weft: Weft, fleet: Fleet) -> None:
    fleet.make(worker=True, state=State.RUNNING)
    told = weft("status", fleet.crawl, "--frontier", fleet.url)
    assert told.code == 0, told.err
    assert told.out.startswith(f"running  {fleet.crawl}\n")
    (row,) = [line.split() for line in told.out.splitlines() if line.startswith("box-1-a")]
    assert row[:7] == ["box-1-a", "working", "now", "17", "2", "4", "3"]
    data = json.loads(weft("status", fleet.crawl, "--frontier", fleet.url, "--json").out)
    assert (data["alive"], data["supervised"], data["workers"]["box-1-a"]["held"]) == (True, False, 4)


def test_a_fleet_without_anybody_was_cut_short(weft: Weft, fleet: Fleet) -> None:
    fleet.make(worker=False, state=State.RUNNING)
    told = weft("status", fleet.crawl, "--frontier", fleet.url)
    assert told.out.startswith(f"cut short  {fleet.crawl}\n")
    assert f"weft crawl /other/machine/shop.py --frontier {fleet.url}\n" in told.out


def test_a_crawl_of_a_fleet_by_its_file_on_this_machine(weft: Weft, fleet: Fleet) -> None:
    fleet.make(worker=False, state=State.STOPPED)
    Path("shop.py").write_text(SPIDER)
    told = weft("status", "shop.py", "--frontier", fleet.url)
    assert told.code == 0, told.err
    assert told.err.endswith(f"of {fleet.crawl}\n")
