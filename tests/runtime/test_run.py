"""Crawls of programs: run, run_async and stream."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import uttu
from uttu import CrawlSummary, Page, Spider
from uttu.errors import ConfigError, SpiderError, UsageError, UttuError
from uttu.model.crawl import SettingValues
from uttu.runtime.run import STREAM_BATCH, STREAM_CLOSED
from uttu.settings import Settings
from uttu.testing.crawls import crawl
from uttu.testing.site import Site, SiteProcess

QUICK: SettingValues = {"delay": 0.0, "per_host": 0, "robots": False, "private": True}


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with SiteProcess(Site()) as process:
        yield process.url


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shop(site: str, name: str = "shop") -> Spider:
    spider = Spider(name, start=f"{site}shop/", **QUICK)

    @spider.page
    def each(page: Page) -> Iterator[Any]:
        yield {"url": page.url}
        yield page.follow_all("article.product h3 a, li.next a")

    return spider


def lines(file: str) -> list[Any]:
    return [msgspec.json.decode(line) for line in Path(file).read_bytes().splitlines()]


def status(*options: str) -> str:
    """What ``uttu status shop`` prints."""
    command = [sys.executable, "-m", "uttu", "status", "shop", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_run(site: str) -> None:
    summary = uttu.run(shop(site), output="items.jsonl")
    assert (summary.crawl, summary.state, summary.reason) == ("shop", "finished", "")
    assert summary.counts.items == summary.counts.done == len(lines("items.jsonl")) > 100
    assert Path(".uttu/crawls/shop.db").exists()


def test_the_command_line_knows_the_crawl_and_where_it_was_written(site: str) -> None:
    uttu.run(shop(site), output=[Path("items.jsonl")], max_pages=5)
    shown = msgspec.json.decode(status("--json"))
    assert (shown["state"], Path(shown["file"]).name) == ("limited", "test_run.py")


def test_a_limit_is_continued_or_started_again(site: str) -> None:
    assert uttu.run(shop(site), max_pages=5).state == "limited"
    summary = uttu.run(shop(site), max_pages=8, resume=True)
    assert (summary.state, summary.reason, summary.counts.done) == ("limited", "limit of 8 pages", 8)
    assert uttu.run(shop(site), max_pages=3, fresh=True).counts.done == 3


async def test_two_crawls_at_once(site: str) -> None:
    first, second = await asyncio.gather(
        uttu.run_async(shop(site, "first"), output="1.jsonl"), uttu.run_async(shop(site, "second"), output="2.jsonl")
    )
    assert first.state == second.state == "finished"
    assert len(lines("1.jsonl")) == len(lines("2.jsonl")) == first.counts.items


async def test_two_of_one_name_are_refused(site: str) -> None:
    started = await asyncio.gather(
        *(uttu.run_async(shop(site), max_pages=20) for _ in range(2)), return_exceptions=True
    )
    (error,) = (each for each in started if isinstance(each, BaseException))
    assert isinstance(error, UttuError)
    assert "'shop' is running already" in str(error)
    assert {each.state for each in started if isinstance(each, CrawlSummary)} == {"limited"}


async def test_run_in_a_loop_names_the_other_function(site: str) -> None:
    with pytest.raises(UsageError, match=r"await uttu\.run_async"):
        uttu.run(shop(site))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"delays": 1}, UsageError, r"the keywords of this call: unknown setting 'delays'; did you mean 'delay'"),
        ({"delay": "slow"}, UsageError, r"the keywords of this call: delay='slow'"),
        ({"fresh": True, "resume": True}, UsageError, "fresh=True .* resume=True"),
        ({"name": "a/b"}, ConfigError, "a/b"),
        ({"output": "items.txt"}, UsageError, r"\.jsonl"),
    ],
)
async def test_wrong_arguments(site: str, given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        await uttu.run_async(shop(site), **given)


async def test_a_spider_without_a_handler() -> None:
    with pytest.raises(SpiderError, match="has no handler"):
        await uttu.run_async(Spider("empty", start="http://127.0.0.1/"))


async def test_a_cancelled_crawl_ends_gracefully_and_is_resumed(site: str) -> None:
    spider, begun = shop(site), asyncio.Event()

    @spider.use
    async def watch(request: Any, next: Any) -> Any:
        begun.set()
        return await next(request)

    task = asyncio.create_task(uttu.run_async(spider, output="items.jsonl", delay=0.05, per_host=1))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "stopped" in status()
    summary = await uttu.run_async(shop(site), output="items.jsonl")
    assert summary.state == "finished"
    items = lines("items.jsonl")
    assert len(items) == len({item["url"] for item in items}) == summary.counts.items


async def test_stream(site: str) -> None:
    items = [item async for item in uttu.stream(shop(site), output="items.jsonl")]
    assert items == lines("items.jsonl")
    assert len(items) > STREAM_BATCH
    # Read to the end, so the next call starts a new crawl.
    assert len([item async for item in uttu.stream(shop(site))]) == len(items)


async def test_a_stream_that_is_closed_early_continues_after_its_last_item(site: str) -> None:
    given = []
    async with contextlib.aclosing(uttu.stream(shop(site), delay=0.01, per_host=1)) as stream:
        async for item in stream:
            given.append(item["url"])
            if len(given) == 5:
                break
    assert str(STREAM_CLOSED) in status()
    given += [item["url"] async for item in uttu.stream(shop(site))]
    assert len(given) == len(set(given)) > 100


async def test_the_crawl_ended_before_its_items_were_read(site: str) -> None:
    given = []
    async with contextlib.aclosing(uttu.stream(shop(site), max_pages=50)) as stream:
        async for item in stream:
            given.append(item["url"])
            await asyncio.sleep(2 if len(given) == 1 else 0)
            if len(given) == 7:
                break
    given += [item["url"] async for item in uttu.stream(shop(site), max_pages=50)]
    assert len(given) == len(set(given)) == 50


async def test_the_error_of_a_crawl_ends_its_stream(site: str) -> None:
    spider = shop(site)

    @spider.start
    def start() -> Iterator[str]:
        raise ValueError("no start")
        yield ""

    with pytest.raises(UttuError, match="no start"):
        async for _ in uttu.stream(spider):
            pass


async def test_a_stream_of_a_running_crawl_is_refused(site: str) -> None:
    async with contextlib.aclosing(uttu.stream(shop(site), delay=0.05, per_host=1)) as stream:
        await anext(stream)
        with pytest.raises(UttuError, match="running already"):
            await anext(uttu.stream(shop(site)))


PROGRAM = """
import asyncio, sys, uttu
from uttu import Spider

spider = Spider("program", start="{site}", delay=0.02, robots=False, private=True)

@spider.page
def each(page):
    yield {{"url": page.url}}
    yield page.follow_all("article.product h3 a, li.next a")

async def stream():
    async for item in uttu.stream(spider, **{{"delay": 0, "per_host": 0}}):
        print(item["url"], flush=True)

if __name__ == "__main__":
    if sys.argv[1:] == ["stream"]:
        asyncio.run(stream())
    else:
        print("begun", flush=True)
        summary = uttu.run(spider, output="items.jsonl", max_pages=int(sys.argv[1]))
        print(summary.state, summary.reason)
"""


def program(site: str) -> Path:
    file = Path("program.py")
    text = PROGRAM.format(site=site + "shop/")
    file.write_text(text)
    return file


def wait_for_items(file: str = "items.jsonl") -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and not (Path(file).exists() and Path(file).stat().st_size):
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_program_gracefully(site: str, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, program(site), "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for_items()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (out, err) == ("begun\nstopped interrupted\n", "")


def test_a_killed_program_goes_on(site: str) -> None:
    with subprocess.Popen([sys.executable, program(site), "0"], stdout=subprocess.DEVNULL) as process:
        wait_for_items()
        process.kill()
    done = subprocess.run([sys.executable, "program.py", "0"], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "begun\nfinished \n"
    urls = [item["url"] for item in lines("items.jsonl")]
    assert len(urls) == len(set(urls)) > 100


def test_a_killed_stream_leaves_no_item_out(site: str) -> None:
    command = [sys.executable, str(program(site)), "stream"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = [process.stdout.readline().strip() for _ in range(30)]
        process.kill()
        first += process.stdout.read().split()
    rest = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.split()
    assert len(rest) == len(set(rest))
    whole = uttu.run(shop(site, "whole")).counts.items
    assert len({*first, *rest}) == whole
    assert len(first) + len(rest) - whole <= STREAM_BATCH


def test_a_spider_file_does_not_start_a_crawl_while_it_is_loaded(site: str) -> None:
    Path("open.py").write_text(PROGRAM.format(site=site).partition("if __name__")[0] + "\nuttu.run(spider)\n")
    command = [sys.executable, "-m", "uttu", "crawl", "open.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert 'if __name__ == "__main__"' in done.stderr


def test_the_keywords_of_a_spider_are_the_settings() -> None:
    hints, fields = typing.get_type_hints(SettingValues), typing.get_type_hints(Settings)
    assert hints.keys() == fields.keys()
    wider = {name: hint for name, hint in hints.items() if hint != fields[name]}
    assert wider.keys() == {"domains", "headers"}
    assert not SettingValues.__required_keys__


async def test_crawls_of_tests_are_led_the_same_way(site: str, folder: Path) -> None:
    crawled = await crawl(shop(site), folder, max_pages=3)
    assert (crawled.ending.state, len(crawled.items)) == ("limited", 3)


def sized(site: str, seen: list[Any]) -> Spider:
    spider = Spider("sized", start=f"{site}shop/", args={"size": 1, "words": ["a"], "mode": ""}, **QUICK)

    @spider.page
    def each(page: Page) -> None:
        seen.append(dict(spider.args))

    return spider


def test_arguments_are_set_for_one_run(site: str) -> None:
    seen: list[Any] = []
    spider = sized(site, seen)
    given = uttu.run(spider, args={"size": 3, "words": ["b", "c"], "mode": "new"})
    again = uttu.run(spider, args={"size": "3", "words": '["b","c"]', "mode": "new"})
    plain = uttu.run(spider)
    assert seen == [*[{"size": 3, "words": ["b", "c"], "mode": "new"}] * 2, {"size": 1, "words": ["a"], "mode": ""}]
    assert given.crawl == again.crawl != plain.crawl == "sized"
    assert spider.args == {"size": 1, "words": ["a"], "mode": ""}
    facts = msgspec.json.decode(
        subprocess.run(
            [sys.executable, "-m", "uttu", "status", given.crawl, "--json"], capture_output=True, check=True
        ).stdout
    )
    assert facts["state"] == "finished"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"args": {"sizes": 3}}, "takes no argument sizes; it takes: size, words, mode"),
        ({"args": {"size": "many"}}, "-a size=many"),
        ({"workers": 0}, "workers=0: give 1 or more"),
    ],
)
def test_wrong_arguments_are_refused(site: str, given: dict[str, Any], text: str) -> None:
    spider = sized(site, [])
    with pytest.raises(UsageError, match=text):
        uttu.run(spider, **given)
    assert spider.args == {"size": 1, "words": ["a"], "mode": ""}
    assert not Path(".uttu/crawls").exists()


async def test_one_spider_with_two_sets_of_arguments_at_once_is_refused(site: str) -> None:
    spider = sized(site, [])
    done = await asyncio.gather(
        *(uttu.run_async(spider, args={"size": size}, name=name) for size, name in ((2, "a"), (3, "b"), (2, "c"))),
        return_exceptions=True,
    )
    assert [type(each) for each in done] == [CrawlSummary, UsageError, CrawlSummary]
    assert "give each crawl its own Spider object" in str(done[1])
    assert spider.args["size"] == 1


SHARED = """
import os
import uttu
from uttu import Page, Spider

spider = Spider("shop", start="{site}shop/", args={{"tag": "none"}}, delay=0, per_host=0, robots=False, private=True)

@spider.page
def each(page: Page):
    yield {{"url": page.url, "tag": spider.args["tag"], "pid": os.getpid()}}
    yield page.follow_all("article.product h3 a, li.next a")

{guard}
    summary = uttu.run(
        spider, output="items.jsonl", args={{"tag": "x y"}}, workers=2, http2=False,
        domains=["a.example", "127.77.0.1"],
        headers={{"X-Who": "me"}},
    )
    print(summary.state, summary.counts.items, os.getpid())
"""


def test_several_workers(site: str) -> None:
    Path("program.py").write_text(SHARED.format(site=site, guard='if __name__ == "__main__":'))
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, check=True)
    state, items, own = done.stdout.split()
    rows = lines("items.jsonl")
    assert (state, int(items)) == ("finished", len(rows))
    assert len({row["url"] for row in rows}) == len(rows) > 100
    assert {row["tag"] for row in rows} == {"x y"}
    assert int(own) not in {row["pid"] for row in rows}
    assert done.stderr == ""


def test_several_workers_need_a_file_that_starts_no_crawl_when_it_is_loaded(site: str) -> None:
    Path("program.py").write_text(SHARED.format(site=site, guard="if True:"))
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "UttuError: A worker process failed with exit code 3; its message is above" in done.stderr
    assert 'Put the call below: if __name__ == "__main__":' in done.stderr


def test_several_workers_need_a_file(site: str) -> None:
    code = compile("def each(page): yield {}", "<notebook>", "exec")
    names: dict[str, Any] = {}
    exec(code, names)
    spider = Spider("typed", start=site, **QUICK)
    spider.page(names["each"])
    with pytest.raises(UsageError, match="workers=2: the spider 'typed' has no file that each process could load"):
        uttu.run(spider, workers=2)
