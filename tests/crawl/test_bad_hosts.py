"""Whatever a host does, its page ends dead with a reason that says so, and the crawl goes on."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from uttu import Failure, Page, Request, Response, Spider
from uttu.fetch import pool, resolver
from uttu.frontier.base import Rules
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Redirect
from uttu.model.crawl import CrawlState
from uttu.model.url import fingerprint, host_of
from uttu.policy.scope import OutOfScope
from uttu.spider.spider import Next
from uttu.testing.crawls import Crawled, crawl
from uttu.testing.site import Site, serve
from uttu.testing.site.odd.charsets import CHARSETS

QUICK: dict[str, Any] = {"retries": 0, "timeout": 3.0, "connect_timeout": 2.0, "read_timeout": 1.0, "max_body": 200_000}


async def visit(folder: Path, *urls: str, **settings: Any) -> Crawled:
    """A crawl of these URLs that saves what it gets."""
    spider = Spider("odd", start=urls, private=True)

    @spider.page
    def page(page: Page) -> object:
        return {"url": page.url, "text": page.text[:200], "via": list(page.request.via)}

    return await crawl(spider, folder, **{**QUICK, **settings})


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("odd/hang", r"timeout: .*1 s"),
        ("odd/stall", r"timeout: "),
        ("odd/slow?seconds=30", r"timeout: "),
        ("odd/reset", r"network: .* broke before the body was complete: Connection reset by peer"),
        ("odd/close", r"network: .* broke before the response: Connection closed by peer"),
        ("odd/truncated", r"network: .* broke before the body was complete"),
        ("odd/truncated?chunked=1", r"network: .* broke before the body was complete"),
        ("odd/garbage", r"bad_response: "),
        ("odd/endless", r"too_large: .*200,?000"),
        ("odd/huge?bytes=100000000", r"too_large: "),
        ("odd/bomb?mb=64", r"too_large: "),
        ("odd/redirect/self", r"redirect: more than 10 redirects"),
        ("odd/redirect/bad", r"redirect: redirects to .* not a web address"),
        ("odd/redirect/none", r"http: answered with status 302"),
        ("odd/status/404", r"http: answered with status 404"),
        ("odd/status/500", r"http: answered with status 500"),
    ],
)
async def test_dead_with_a_reason(tmp_path: Path, path: str, reason: str) -> None:
    async with serve(Site(pages=1)) as site:
        done = await visit(tmp_path, site.url + path, site.url + "p/0")
        assert done.ending.state is CrawlState.FINISHED
        assert [item["url"] for item in done.items] == [site.url + "p/0"]
        assert len(done.dead) == 1
        letter = done.dead[0]
        assert re.match(reason, f"{letter.kind}: {letter.reason}"), f"{letter.kind}: {letter.reason}"


async def test_endless_redirects_to_new_urls(tmp_path: Path) -> None:
    async with serve(Site(pages=1)) as site:
        done = await visit(tmp_path, site.url + "odd/redirect/endless?n=1", max_redirects=4)
        assert [letter.request.url for letter in done.dead] == [site.url + "odd/redirect/endless?n=5"]
        assert done.counts.done == 4


async def test_a_host_that_refuses(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.77.9.9", 0))
        url = f"http://127.77.9.9:{unused.getsockname()[1]}/"
        done = await visit(tmp_path, url)
        assert re.match(r"network: .*127\.77\.9\.9", done.dead_reason(url))


async def test_a_name_that_does_not_resolve(tmp_path: Path) -> None:
    done = await visit(tmp_path, "http://no-such-host.invalid/")
    assert re.match(r"dns: .*no-such-host\.invalid", done.dead_reason("http://no-such-host.invalid/"))


async def test_bad_tls(tmp_path: Path, certificate: tuple[Path, Path, Path]) -> None:
    file, key, authority = certificate
    async with serve(Site(pages=1, certificate=str(file), key=str(key))) as site:
        done = await visit(tmp_path / "a", site.url + "p/0")
        assert re.match(r"tls: .*(verify|ca_file)", done.dead_reason(site.url + "p/0"))
        assert (await visit(tmp_path / "b", site.url + "p/0", verify=False)).counts.done == 1
        assert (await visit(tmp_path / "c", site.url + "p/0", ca_file=str(authority))).counts.done == 1


async def test_pages_in_all_charsets_are_read_as_a_browser_reads_them(tmp_path: Path) -> None:
    async with serve(Site(pages=1)) as site:
        done = await visit(tmp_path, *(f"{site.url}odd/charset/{name}" for name in CHARSETS))
        read = {item["url"].rpartition("/")[2]: re.findall("<h1>(.*)</h1>", item["text"]) for item in done.items}
        assert read == {name: [sample.text] for name, sample in CHARSETS.items()}


async def test_failures_are_tried_again(tmp_path: Path) -> None:
    async with serve(Site(pages=1)) as site:
        done = await visit(tmp_path, site.url + "odd/flaky/x?fails=1&status=500", retries=2)
        assert (done.counts.done, done.counts.dead) == (1, 0)
        assert len(site.log) == 2


async def test_redirects_are_recorded_and_deduplicated(tmp_path: Path) -> None:
    async with serve(Site(pages=1)) as site:
        steps = [f"{site.url}odd/redirect/{n}" for n in range(4)]
        done = await visit(tmp_path, steps[3], steps[2])
        assert [(item["url"], item["via"]) for item in done.items] == [(steps[0], [steps[2], steps[1]])]
        assert sorted(record.path for record in site.log) == [f"/odd/redirect/{n}" for n in range(4)]
        store = await SqliteCatalog(tmp_path).open("odd", Rules())
        traces = [await store.inspector.trace(fingerprint(url)) for url in steps]
        await store.frontier.close()
        assert [(trace.state, trace.status) for trace in traces] == [("done", 200), *[("done", 302)] * 3]
        assert [trace.redirect for trace in traces] == [None, *(Redirect(url) for url in steps[:3])]


async def test_a_redirect_out_of_scope_is_recorded_with_the_reason(tmp_path: Path) -> None:
    async with serve(Site(pages=1)) as site:
        start = f"{site.url}odd/redirect/to?url=http://else.example/"
        done = await visit(tmp_path, start, domains=[host_of(site.url)])
        assert (done.items, done.dead, done.counts.done) == ([], [], 1)
        store = await SqliteCatalog(tmp_path).open("odd", Rules())
        trace = await store.inspector.trace(fingerprint(start))
        await store.frontier.close()
        assert (trace.status, trace.links) == (302, 0)
        assert trace.redirect == Redirect("http://else.example/", OutOfScope.DOMAINS)


async def test_a_redirect_back_to_itself_with_a_cookie(tmp_path: Path) -> None:
    async with serve(Site(pages=1)) as site:
        for cookies in (True, False):
            done = await visit(tmp_path / str(cookies), site.url + "odd/redirect/cookie", cookies=cookies)
            assert [item["via"] for item in done.items] == [[site.url + "odd/redirect/cookie"]]


async def test_redirects_keep_to_the_scope(tmp_path: Path) -> None:
    async with serve(Site(pages=1, hosts=2)) as site:
        spider = Spider("scoped", start=site.urls[0] + "odd/redirect/host")
        spider.page(page := _nothing)
        done = await crawl(spider, tmp_path)
        assert page is _nothing
        assert (done.counts.done, done.counts.dead) == (1, 0)
        assert {record.host for record in site.log} == {"127.77.0.1"}


def _nothing(page: Page) -> None: ...


async def test_private_hosts_are_not_followed_unless_it_started_there(tmp_path: Path) -> None:
    async with serve(Site(pages=10, hosts=2)) as site:
        for private, hosts in ((False, {"127.77.0.1"}), (True, {"127.77.0.1", "127.77.0.2"})):
            spider = Spider("private", start=site.urls[0] + "p/0")
            spider.page(_follow)
            await crawl(spider, tmp_path / str(private), private=private)
            assert {record.host for record in site.log} == hosts


@pytest.mark.parametrize("cached", [False, True])
async def test_a_name_whose_answer_changes_after_it_was_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    """DNS rebinding: the first answer is public, all others lead into the private network."""
    asked: list[str] = []

    async def addresses(name: str) -> list[str]:
        if name != "shop.example":
            return [name]
        asked.append(name)
        return ["127.77.0.2"] if len(asked) > 1 else ["192.0.2.1"]

    monkeypatch.setattr(resolver, "look_up_addresses", addresses)
    monkeypatch.setattr(pool, "look_up_addresses", addresses)
    monkeypatch.setattr(resolver, "is_private_address", lambda address: address != "192.0.2.1")
    async with serve(Site(pages=1, hosts=2)) as site:
        lured = site.urls[1].replace("127.77.0.2", "shop.example") + "odd/echo"
        spider = Spider("lured", start=site.url + "p/0")

        @spider.page
        def page(page: Page) -> object:
            return [{"url": page.url}, Request(url=lured)]

        done = await crawl(spider, tmp_path, connect_timeout=0.3, retries=0, robots=False, cache=cached)
        assert {record.host for record in site.log} == {"127.77.0.1"}
        assert lured not in {item["url"] for item in done.items}
        assert asked == ["shop.example"]


@pytest.mark.parametrize("way", ["linked", "redirected"])
async def test_names_that_lead_to_private_hosts_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """They look like any other; only who asks for their address can know."""

    async def addresses(name: str) -> list[str]:
        return ["127.77.0.2" if name == "shop.example" else name]

    monkeypatch.setattr(resolver, "look_up_addresses", addresses)
    monkeypatch.setattr(pool, "look_up_addresses", addresses)
    async with serve(Site(pages=1, hosts=2)) as site:
        lured = site.urls[1].replace("127.77.0.2", "shop.example") + "odd/echo"
        start = {"linked": site.url + "p/0", "redirected": f"{site.url}odd/redirect/to?url={lured}"}[way]
        for private in (False, True):
            spider = Spider("lured", start=start)

            @spider.page
            def page(page: Page) -> object:
                return [{"url": page.url}, Request(url=lured)]

            done = await crawl(spider, tmp_path / str(private), private=private)
            assert {record.host for record in site.log} == ({"127.77.0.1", "127.77.0.2"} if private else {"127.77.0.1"})
            assert (lured in {item["url"] for item in done.items}) is private
            if not private:
                assert done.dead_reason(lured) == "scope: shop.example resolves to the private address 127.77.0.2"


def _follow(page: Page) -> Sequence[Request]:
    return page.follow_all("a")


@pytest.mark.parametrize("trap", ["trap/calendar/2026/11/", "trap/deep/a/b/", "trap/session?sid=1", "trap/long"])
async def test_traps_end(tmp_path: Path, trap: str) -> None:
    async with serve(Site(pages=1)) as site:
        spider = Spider("trapped", start=site.url + trap)
        spider.page(_follow)
        done = await crawl(spider, tmp_path, max_pages=3000, max_url_length=120)
        assert done.ending.state is CrawlState.FINISHED, done.counts


async def test_on_error_gets_what_was_given_up(tmp_path: Path) -> None:
    async with serve(Site(pages=1)) as site:
        spider = Spider("errors", start=[site.url + "odd/status/410", site.url + "p/0"])

        @spider.page
        def page(page: Page) -> None:
            raise ValueError("my mistake")

        @spider.on_error
        async def failed(failure: Failure) -> object:
            status = failure.response.status if failure.response else 0
            return {"url": failure.request.url, "kind": failure.kind, "status": status}

        done = await crawl(spider, tmp_path, retries=0)
        assert sorted((item["kind"], item["status"]) for item in done.items) == [("handler", 200), ("http", 410)]
        assert done.counts.dead == 2


async def test_a_handler_that_raises(tmp_path: Path) -> None:
    async with serve(Site(pages=3)) as site:
        spider = Spider("raises", start=site.url + "p/0")

        @spider.page
        def page(page: Page) -> object:
            yield {"url": page.url}
            yield page.follow_all("a")
            if page.url.endswith("/1"):
                raise ValueError("my mistake")

        done = await crawl(spider, tmp_path)
        assert done.dead_reason(site.url + "p/1") == "handler: ValueError: my mistake"
        assert "in page" in done.dead[0].detail
        assert 'raise ValueError("my mistake")' in done.dead[0].detail
        assert sorted(item["url"] for item in done.items) == [site.url + "p/0", site.url + "p/2"]


async def test_an_item_that_can_not_be_written(tmp_path: Path) -> None:
    """Nothing of its page is kept; the crawl goes on with the next."""
    async with serve(Site(pages=3)) as site:
        spider = Spider("odd-item", start=[site.url + "p/0", site.url + "p/1"])

        @spider.page
        def page(page: Page) -> object:
            odd = page.url.endswith("/0")
            yield {"url": page.url}
            yield Request(url=site.url + "p/2", meta={"odd": odd})
            yield {"what": object() if odd else "text"}

        done = await crawl(spider, tmp_path, per_host=1)
        assert [letter.request.url for letter in done.dead] == [site.url + "p/0"]
        assert "handler: TypeError: the item can't be written as JSON" in done.dead_reason(site.url + "p/0")
        assert done.items == [
            item for number in (1, 2) for item in ({"url": f"{site.url}p/{number}"}, {"what": "text"})
        ]


async def test_a_middleware_that_raises_and_one_that_answers(tmp_path: Path) -> None:
    async with serve(Site(pages=2)) as site:
        spider = Spider("middle", start=[site.url + "p/0", site.url + "p/1"])
        seen: list[str] = []

        @spider.use
        async def outer(request: Request, next: Next) -> Response:
            seen.append("outer")
            return await next(request)

        @spider.use
        async def inner(request: Request, next: Next) -> Response:
            seen.append("inner")
            if request.url.endswith("/1"):
                raise KeyError("broken")
            return await next(request)

        spider.page(lambda page: {"url": page.url})
        done = await crawl(spider, tmp_path)
        assert seen == ["outer", "inner"] * 2
        assert done.dead_reason(site.url + "p/1") == "middleware: KeyError: 'broken'"
        assert done.counts.done == 1


@pytest.mark.parametrize("given", [None, "a page", 200])
async def test_a_middleware_that_gives_no_response(tmp_path: Path, given: object) -> None:
    async with serve(Site(pages=1)) as site:
        spider = Spider("forgetful", start=site.url + "p/0")

        @spider.use
        async def outer(request: Request, next: Next) -> Response:
            response = await next(request)
            assert response.status == 200, "it does not come that far"
            return response

        @spider.use
        async def inner(request: Request, next: Next) -> Any:
            await next(request)
            return given

        spider.page(_nothing)
        done = await crawl(spider, tmp_path)
        reason = f"middleware: TypeError: middleware 'inner' returned {given!r}, not a Response"
        assert done.dead_reason(site.url + "p/0") == reason + ("" if given else "; is a return missing?")


async def test_a_middleware_that_is_not_async_and_gives_nothing(tmp_path: Path) -> None:
    spider = Spider("plain", start="http://127.77.0.1:9/")
    spider.use(lambda request, _: None)  # type: ignore[arg-type, return-value]
    spider.page(_nothing)
    done = await crawl(spider, tmp_path)
    assert "middleware '<lambda>' returned None, not a Response" in done.dead_reason("http://127.77.0.1:9/")


async def test_a_middleware_that_would_take_the_crawl_down(tmp_path: Path) -> None:
    async with serve(Site(pages=2)) as site:
        spider = Spider("leaving", start=[site.url + "p/0", site.url + "p/1"])

        @spider.use
        async def leave(request: Request, next: Next) -> Response:
            if request.url.endswith("/0"):
                sys.exit("no more")
            return await next(request)

        spider.page(lambda page: {"url": page.url})
        done = await crawl(spider, tmp_path)
        assert done.dead_reason(site.url + "p/0") == "middleware: SystemExit: no more"
        assert done.counts.done == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"headers": {"X": 1}}, "can't be stored"),
        ({"meta": {"o": object()}}, "can't be stored"),
        ({"meta": [1]}, "can't be stored"),
        ({"priority": "5"}, "can't be stored"),
        ({"body": {"a": 1}}, "Use bytes or text"),
        ({"url": "/p/3"}, "not an absolute http or https URL"),
    ],
)
async def test_requests_that_are_made_wrongly(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    async with serve(Site(pages=1)) as site:
        spider = Spider("wrong", start=site.url + "p/0")

        @spider.page
        def page(page: Page) -> Request:
            return Request(**{"url": site.url + "shop/"} | fields)

        done = await crawl(spider, tmp_path)
        reason = done.dead_reason(site.url + "p/0")
        assert reason.startswith("handler: ")
        assert message in reason


async def test_a_request_made_by_hand_is_made_canonical(tmp_path: Path) -> None:
    async with serve(Site(pages=2)) as site:
        spider = Spider("hand", start=site.url + "p/0")

        @spider.page
        def page(page: Page) -> list[Request]:
            return [Request(url=site.url.replace("http:", "HTTP:") + "shop/../p/1#part"), Request(url=site.url + "p/1")]

        done = await crawl(spider, tmp_path)
        assert done.counts.done == 2
        assert [record.path for record in site.log] == ["/p/0", "/p/1"]


async def test_on_error_hears_of_robots(tmp_path: Path) -> None:
    async with serve(Site(pages=1)) as site:
        spider = Spider("told", start=site.url + "private/1")
        spider.page(_nothing)
        spider.on_error(lambda failure: {"kind": failure.kind})
        done = await crawl(spider, tmp_path, robots=True)
        assert done.items == [{"kind": "robots"}]


@pytest.mark.parametrize("how", ["exit", "cancel"])
async def test_handlers_that_would_take_the_crawl_down(tmp_path: Path, how: str) -> None:
    async with serve(Site(pages=2)) as site:
        spider = Spider("down", start=[site.url + "p/0", site.url + "p/1"])

        @spider.page
        async def page(page: Page) -> object:
            if page.url.endswith("/0"):
                if how == "exit":
                    sys.exit("bye")
                future = asyncio.get_running_loop().create_future()
                future.cancel()
                await future
            return {"url": page.url}

        done = await crawl(spider, tmp_path)
        assert [item["url"] for item in done.items] == [site.url + "p/1"]
        assert done.dead_reason(site.url + "p/0").startswith("handler: ")
        assert len(site.log) == 2


async def test_a_page_too_deep_by_one_way_may_be_near_by_another(tmp_path: Path) -> None:
    async with serve(Site(pages=3)) as site:
        spider = Spider("depth", start=site.url + "p/0")

        @spider.page
        def page(page: Page) -> object:
            yield {"url": page.url}
            yield Request(url=site.url + "p/2", depth=9)
            if page.url.endswith("/1"):
                yield Request(url=site.url + "p/2", depth=2)
            yield Request(url=site.url + "p/1", depth=1)

        done = await crawl(spider, tmp_path, max_depth=3)
        assert sorted(item["url"] for item in done.items) == [site.url + f"p/{n}" for n in range(3)]


async def test_items_of_a_page_that_died_and_was_revived_have_ids_of_their_own(tmp_path: Path) -> None:
    async with serve(Site(pages=1)) as site:
        url = site.url + "odd/flaky/x?fails=1&status=404"
        spider = Spider("revived", start=url)
        spider.page(lambda page: {"came": "at last"})
        spider.on_error(lambda failure: {"came": "not"})
        assert (await crawl(spider, tmp_path, retries=0)).items == [{"came": "not"}]
        store = await SqliteCatalog(tmp_path).open("revived", Rules())
        assert await store.inspector.revive() == 1
        await store.ledger.note(state=CrawlState.STOPPED)
        await store.frontier.close()
        assert (await crawl(spider, tmp_path, retries=0)).items == [{"came": "not"}, {"came": "at last"}]
        store = await SqliteCatalog(tmp_path).open("revived", Rules())
        not_yet, at_last = [item.id.partition("-")[::2] for item in await store.outbox.items(0, 10)]
        assert not_yet[0] == at_last[0], "both are of the one page"
        assert re.fullmatch("e[1-9][0-9]*000", not_yet[1])
        assert at_last[1] == "0"
        await store.frontier.close()
