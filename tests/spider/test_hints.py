"""Hints for people who bring the words of other tools along."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uttu import Failure, Page, Request, Spider, setting_names, settings
from uttu.engine.handler_output import collect
from uttu.errors import ConfigError, SpiderError, StartError, UsageError
from uttu.spider.handler_errors import format_line
from uttu.spider.items import encode
from uttu.spider.loader import find_warnings, load_spider
from uttu.testing.pages import page_of


def drop(page: Page) -> None:
    page.follow("a.next")


def drop_item(page: Page) -> None:
    for title in page.css("h1::text"):
        {"title": title.get()}
        print(title)


async def drop_later(page: Page) -> None:
    page.follow_all("a")


def early(page: Page) -> Any:
    if page.status != 200:
        return None
    return [page.follow("a")]


def giving(page: Page) -> Any:
    yield page.follow("a")


async def giving_later(page: Page) -> Any:
    yield page.follow("a")


async def returning(page: Page) -> Any:
    return page.follow_all("a")


def nothing(page: Page) -> None: ...


def calling(page: Page) -> Any:
    return giving(page)


@pytest.mark.parametrize("handler", [drop, drop_item, drop_later])
def test_a_forgotten_yield(handler: Callable[..., Any]) -> None:
    spider = Spider("s")
    spider.page(handler)
    (doubt,) = find_warnings(spider)
    assert f"handler {handler.__name__!r}" in doubt
    assert "yield" in doubt


@pytest.mark.parametrize("handler", [early, giving, giving_later, returning, nothing, calling])
def test_no_warning_for_handlers_that_yield(handler: Callable[..., Any]) -> None:
    spider = Spider("s", sitemap="https://example.org/sitemap.xml")
    spider.page(handler)
    assert find_warnings(spider) == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("DOWNLOAD_DELAY", "delay"),
        ("CONCURRENT_REQUESTS", "concurrency"),
        ("ROBOTSTXT_OBEY", "robots"),
        ("CONCURRENT_REQUESTS_PER_DOMAIN", "per_host"),
        ("USER_AGENT", "user_agent"),
        ("DEPTH_LIMIT", "max_depth"),
        ("CLOSESPIDER_PAGECOUNT", "max_pages"),
        ("download_delay", "delay"),
        ("start_urls", "start"),
        ("allowed_domains", "domains"),
        ("custom_settings", "keywords of Spider"),
        ("HTTPCACHE_ENABLED", "cache"),
        ("dealy", "'delay'"),
        ("Delay", "'delay'"),
        ("max-pages", "'max_pages'"),
        ("FEEDS", "-o FILE"),
    ],
)
def test_names_of_settings(name: str, hint: str) -> None:
    for spider, flags in (({name: 1}, {}), ({}, {name: 1})):
        with pytest.raises(ConfigError, match=f"unknown setting {name!r}; .*{hint}"):
            settings.load_settings(spider, flags, environment={})


def test_names_that_hints_point_to_exist() -> None:
    for hint in setting_names.OTHER_CRAWLERS.values():
        word = hint.removeprefix("it is ").partition(":")[0]
        assert " " in word or "(" in word or word in settings.Settings.__struct_fields__, hint


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("delay=fast", "give a number, like 0.5"),
        ("concurrency=many", "give a whole number"),
        ("concurrency=1.5", "give a whole number"),
        ("robots=maybe", "give true or false"),
        ("order=random", "give one of"),
    ],
)
def test_values_of_settings(setting: str, said: str) -> None:
    name, _, value = setting.partition("=")
    with pytest.raises(UsageError, match=said):
        settings.load_settings(flags={name: value}, environment={})


def test_variables_that_are_misspelled() -> None:
    given = {"UTTU_DELAYS": "1", "UTTU_JOBS_BROKR": "x", "UTTU_DOWNLOAD_DELAY": "2", "UTTU_USERAGENT": "x"}
    fine = {"UTTU_DELAY": "1", "UTTU_JOBS_BROKER": "x", "UTTU_TEST_DELAYS": "1", "UTTU_MY_OWN_THING": "1", "PATH": ""}
    assert settings.find_misspelled_variables(given | fine).keys() == given.keys()
    assert list(settings.find_misspelled_variables(given | fine).values()) == [
        "UTTU_DELAYS is not a setting; did you mean UTTU_DELAY?",
        "UTTU_JOBS_BROKR is not a setting; did you mean UTTU_JOBS_BROKER?",
        "UTTU_DOWNLOAD_DELAY is not a setting; in Uttu, it is delay",
        "UTTU_USERAGENT is not a setting; in Uttu, it is user_agent",
    ]


def test_the_names_of_job_settings_are_known() -> None:
    from uttu.jobs import JobSettings

    assert set(setting_names.JOB_SETTINGS) == set(JobSettings.__struct_fields__)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("parse", "@spider.page"), ("pages", "'page'"), ("on_eror", "'on_error'"), ("custom_settings", "keywords")],
)
def test_names_of_a_spider(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=f"A spider has no {name!r}; .*{hint}"):
        getattr(Spider("s"), name)
    assert not hasattr(Spider("s"), "model_dump")


def parse(self: Any, response: Any) -> Any:
    yield response


def test_functions_of_a_spider() -> None:
    spider = Spider("s")
    with pytest.raises(SpiderError, match="without brackets"):
        spider.page("https://example.org/")  # type: ignore[call-overload]
    with pytest.raises(SpiderError, match=r"called with the page only, but .*'response'.*def parse\(page\)"):
        spider.page(parse)
    spider.page(lambda page, more=1: None)


def test_decorators_with_empty_brackets() -> None:
    spider = Spider("s")

    @spider.page()
    def listing(page: Page) -> Any: ...

    @spider.page
    def product(page: Page) -> Any: ...

    @spider.start()
    def start() -> Any: ...

    @spider.on_error()
    def failed(failure: Failure) -> Any: ...

    @spider.use()
    async def wait(request: Request, then: Any) -> Any: ...

    assert spider.handlers["listing"] is listing
    assert spider.default_handler == "listing"
    assert spider.handlers["product"] is product
    assert (spider.starter, spider.error_handler, spider.middlewares) == (start, failed, [wait])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda spider: spider.page(url="x"), "@spider.page goes right above .* without brackets; it got url="),
        (lambda spider: spider.page("a", "b"), "@spider.page .* it got 'a', 'b'"),
        (lambda spider: spider.page(None), "@spider.page .* it got None"),
        (lambda spider: spider.page()(None), "@spider.page .* it got None"),
        (lambda spider: spider.page(functools.partial(parse, None)), "with a name"),
        (lambda spider: spider.start("https://example.org/"), "@spider.start .* it got 'https"),
        (lambda spider: spider.start(url="x"), "@spider.start .* it got url="),
        (lambda spider: spider.start(lambda page: []), "called without arguments, but .*'page'"),
        (lambda spider: spider.on_error(lambda: None), "called with the failure only, but"),
        (lambda spider: spider.use(lambda request: []), "called with the request and the next step, but"),
        (lambda spider: spider.use(delay=1), "@spider.use .* it got delay="),
    ],
)
def test_other_things_in_brackets(wrong: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(SpiderError, match=said):
        wrong(Spider("s"))


@pytest.mark.parametrize(
    ("given", "hint"),
    [("quotes", "quotes.py"), ("qoutes.py", "quotes.py"), ("news", "spiders/news.py"), ("spiders", "is a folder")],
)
def test_missing_spider_file(tmp_path: Path, given: str, hint: str) -> None:
    (tmp_path / "quotes.py").touch()
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders" / "news.py").touch()
    with pytest.raises(SpiderError, match=hint):
        load_spider(tmp_path / given)


def test_class_instead_of_spider(tmp_path: Path) -> None:
    file = tmp_path / "quotes.py"
    file.write_text("from uttu import Spider\nclass Quotes(Spider):\n    name = 'quotes'\n")
    with pytest.raises(SpiderError, match=r"has the class Quotes, but no spider\. A spider is an object"):
        load_spider(file)


@pytest.mark.parametrize("body", ["text ✓", bytearray("text ✓".encode()), memoryview("text ✓".encode())])
async def test_a_body_of_text_is_sent_as_utf8(body: Any) -> None:
    spider = Spider("s")

    @spider.start
    def start() -> list[Request]:
        return [Request.to("https://example.org/", method="POST", body=body)]

    (request,) = [each async for each in spider.start_requests()]
    assert request.body == "text ✓".encode()


async def test_body_of_wrong_type_is_an_error() -> None:
    spider = Spider("s")
    spider.start(lambda: [Request.to("https://example.org/", body={"a": 1})])
    with pytest.raises(StartError, match=r"json\.dumps"):
        [each async for each in spider.start_requests()]


def page() -> Page:
    return page_of("<a>")


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda: Request("https://example.org/", "parse"), "Request(url, handler="),  # type: ignore[call-arg]
        (lambda: Request(url="https://example.org/", callback=print), "Use handler="),  # type: ignore[call-arg]
        (lambda: Request(url="https://example.org/", json={}), "json.dumps"),  # type: ignore[call-arg]
        (lambda: page().status_code, "page.status"),  # type: ignore[attr-defined]
        (lambda: page().find_all("a"), ".css(…)"),  # type: ignore[attr-defined]
        (lambda: page().css("a").extract_first(), ".get()"),  # type: ignore[attr-defined]
        (lambda: page().xpath("//a").extract(), ".getall()"),  # type: ignore[attr-defined]
        (lambda: page().soup, "page.css(…)"),  # type: ignore[attr-defined]
        (lambda: page().html, "page.text"),  # type: ignore[attr-defined]
        (lambda: page().response.css("a"), "page.css(…)"),  # type: ignore[attr-defined]
        (lambda: page().raise_for_status(), "handlers only get pages with a status of 2xx"),  # type: ignore[attr-defined]
        (lambda: page().css("a").attr("href"), "::attr(NAME)"),  # type: ignore[attr-defined]
        (lambda: page().css("a").string, ".text"),  # type: ignore[attr-defined]
        (lambda: page().css_first("a"), ".css(…)[0]"),  # type: ignore[attr-defined]
        (lambda: page().css("a")["href"], ".attrib.get('href')"),  # type: ignore[index]
        (lambda: page().xpath("//a")["href"], ".attrib.get('href')"),  # type: ignore[index]
        (lambda: page().xpath("//a/@x")["href"], ".attrib.get('href')"),  # type: ignore[index]
        (lambda: page().follow("a", callback=parse), "Use to="),
        (lambda: page().follow_all("a", callback=parse), "page.follow_all() has no argument 'callback'. Use to="),
        (lambda: page().follow("a", parse), "(write to=HANDLER)"),  # type: ignore[call-arg, arg-type]
        (lambda: page().follow_all("a", parse), "(write to=HANDLER)"),  # type: ignore[call-arg]
        (lambda: page().follow_all(css="a"), "pass the selector by position"),
        (lambda: page().follow_all(allow="x"), "page.links(allow=…)"),
        (lambda: page().follow("a", dont_filter=True), "Use salt="),
        (lambda: page().follow(5), "Cannot follow 5: give a URL"),  # type: ignore[arg-type]
        (lambda: page().follow(b"/a"), "Cannot follow b'/a': give a URL"),  # type: ignore[arg-type]
        (lambda: page().follow_all({"url": "/a"}), "Cannot follow {'url': '/a'}: give a URL"),
        (lambda: page().follow_all(["/a", 5]), "Cannot follow 5: give a URL"),  # type: ignore[list-item]
        (lambda: page().follow("a", handler=parse), "Use to=parse"),
        (lambda: Request.to("https://example.org/", handler=parse), "Use handler='parse'"),
        (lambda: Request("https://example.org/", handler=parse), "Use handler='parse'"),  # type: ignore[arg-type]
        (lambda: encode({"title": page().css("a")}), "write .get() or .getall() after it"),
    ],
)
def test_errors_of_handlers(wrong: Callable[[], Any], hint: str) -> None:
    with pytest.raises((TypeError, AttributeError)) as raised:
        wrong()
    assert hint in format_line(raised.value)


@pytest.mark.parametrize("query", ["li.next", "a.n.m", " div.card "])
def test_css_in_xpath(query: str) -> None:
    with pytest.raises(ValueError, match="This is CSS: use css"):
        page().xpath(query)


def test_an_element_with_a_dot_in_its_name_is_found() -> None:
    assert page_of("<body><li.next>x</body>").css("body").xpath("li.next/text()").get() == "x"
    assert page_of("<a><b/></a>", content_type="text/xml").xpath("li.next").getall() == []


class ScrapyRequest:
    __module__ = "scrapy.http.request"


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (ScrapyRequest(), r"This is Scrapy's: for a request, yield page\.follow"),
        (page_of("<a>").css("a"), r"selection\.get\(\)"),
        ("https://example.org/", r"page\.follow\(url=…\)"),
    ],
)
async def test_results_that_are_neither_request_nor_item(value: Any, hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        await collect([value])


def test_other_errors_get_no_hint() -> None:
    assert format_line(TypeError("Unexpected keyword argument 'x'")) == "TypeError: Unexpected keyword argument 'x'"
    assert format_line(AttributeError("'dict' object has no attribute 'find'", name="find", obj={})) == (
        "AttributeError: 'dict' object has no attribute 'find'"
    )
