"""What is typed wrong, or is another tool's word: one line that says what to type."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SPIDER, Uttu
from uttu.testing.site import SiteProcess

DROPPING = """
from uttu import Spider

spider = Spider("dropping", start="http://127.0.0.1:9/", retries=0)

@spider.page
def listing(page):
    page.follow("a.next")
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runspider", "shop.py"], "use: uttu crawl FILE"),
        (["startproject", "x"], "use: uttu new NAME"),
        (["crwal", "shop.py"], "did you mean 'crawl'?"),
        (["shop.py"], "uttu crawl shop.py"),
        (["nonsense"], "see uttu --help"),
        (["list"], "use: uttu status"),
    ],
)
def test_a_command_that_does_not_exist(uttu: Uttu, words: list[str], said: str) -> None:
    told = uttu(*words)
    assert told.code == 2
    assert told.err.startswith(f"uttu: There is no command {words[0]!r}; ")
    assert said in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["crawl", "shop"], 3, "did you mean shop.py?"),
        (["crawl", "shop.py", "-s", "delay=fast"], 2, "delay='fast': give a number, like 0.5"),
        (["crawl", "shop.py", "-s", "DOWNLOAD_DELAY=2"], 2, "in Uttu, it is delay"),
        (["crawl", "shop.py", "-s", "delay"], 2, "write it as key=value"),
        (["crawl", "shop.py", "-a", "tag"], 2, "write it as key=value"),
    ],
)
def test_what_is_given_to_crawl(uttu: Uttu, words: list[str], code: int, said: str) -> None:
    Path("shop.py").write_text(SPIDER)
    told = uttu(*words)
    assert told.code == code
    assert said in told.err
    assert not Path(".uttu").exists()


def test_a_variable_that_is_misspelled(uttu: Uttu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTTU_DELAYS", "1")
    told = uttu("status")
    assert told.err.startswith("uttu: UTTU_DELAYS is not a setting; did you mean UTTU_DELAY?\n")


SILENT = """
from uttu import Spider

spider = Spider("silent", start="{url}", robots=False)

@spider.page
def listing(page):
    yield from page.follow_all("a", to=product)

@spider.page()
def product(page):
    yield page.follow("a.no-such-class")
    for title in page.css("h7::text"):
        yield {{"title": title.get()}}

@spider.page
def ignore(page):
    pass

@spider.page
def unused(page):
    yield page.follow("a")
"""


@pytest.mark.parametrize("more", [(), ("--workers", "2"), ("--json",)])
def test_a_handler_that_yielded_nothing_for_any_page(uttu: Uttu, site: SiteProcess, more: tuple[str, ...]) -> None:
    Path("silent.py").write_text(SILENT.format(url=site.url))
    told = uttu("crawl", "silent.py", *more)
    assert told.code == 0
    (line,) = [line for line in told.err.splitlines() if "yielded nothing" in line]
    assert line.startswith("  warning: the handler 'product' got ")
    assert line.endswith(" pages and yielded nothing: neither items nor requests")


def test_a_handler_without_code_is_meant_so(uttu: Uttu, site: SiteProcess) -> None:
    text = SILENT.format(url=site.url).replace("to=product", "to=ignore")
    Path("silent.py").write_text(text)
    assert "yielded nothing" not in uttu("crawl", "silent.py").err


def test_a_forgotten_yield(uttu: Uttu) -> None:
    Path("dropping.py").write_text(DROPPING)
    told = uttu("crawl", "dropping.py")
    assert "The handler 'listing' neither yields nor returns anything" in told.err


PROXIED = """
from uttu import Spider

spider = Spider("proxied", start=["http://a.example/1", "http://a.example/2"], robots=False, retries=0, per_host=1)

@spider.page
def listing(page):
    yield {"url": page.url}
"""


def test_a_crawl_does_not_go_on_without_its_proxy(uttu: Uttu) -> None:
    """It would show itself to the hosts by another address."""
    Path("proxied.py").write_text(PROXIED)
    assert uttu("crawl", "proxied.py", "--limit", "1", "-s", "proxy=http://127.0.0.1:9").code == 1
    told = uttu("crawl", "proxied.py", "--resume")
    assert told.code == 3
    assert told.err.startswith("uttu: The crawl was started with the setting proxy, which is missing now.")
    assert uttu("why", "http://a.example/2").out.find("pending") >= 0
    assert uttu("crawl", "proxied.py", "--resume", "-s", "proxy=http://127.0.0.1:9").code == 1
