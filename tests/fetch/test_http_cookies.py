from __future__ import annotations

from http.cookies import SimpleCookie

from tests.fetch.conftest import MakeFetcher, Serve
from tests.fetch.servers import Server, reply, response
from weft.model import Request

SETTING = response(b"", "Set-Cookie: kept=1; Path=/", "Set-Cookie: deep=2; Path=/deep", "Set-Cookie: both=jar; Path=/")


def sent(server: Server) -> dict[str, str]:
    return {name: morsel.value for name, morsel in SimpleCookie(server.headers.get("cookie", "")).items()}


async def test_the_jar_keeps_what_hosts_set(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(SETTING))
    fetcher = make()
    await fetcher.fetch(Request.to(server.url))
    assert sent(server) == {}
    await fetcher.fetch(Request.to(server.url))
    assert sent(server) == {"kept": "1", "both": "jar"}
    await fetcher.fetch(Request.to(server.url + "deep/page"))
    assert sent(server) == {"kept": "1", "both": "jar", "deep": "2"}
    await make().fetch(Request.to(server.url))
    assert sent(server) == {}


async def test_a_requests_own_cookies_join_the_jars_and_win(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(SETTING))
    fetcher = make()
    await fetcher.fetch(Request.to(server.url))
    await fetcher.fetch(Request.to(server.url, cookies={"own": "3", "both": "own"}))
    assert sent(server) == {"kept": "1", "both": "own", "own": "3"}
    await fetcher.fetch(Request.to(server.url))
    assert sent(server) == {"kept": "1", "both": "jar"}


async def test_a_cookie_header_is_sent_alone(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(SETTING))
    fetcher = make()
    await fetcher.fetch(Request.to(server.url))
    await fetcher.fetch(Request.to(server.url, headers={"Cookie": "only=1"}, cookies={"own": "3"}))
    assert sent(server) == {"only": "1"}


async def test_without_a_jar_only_own_cookies_are_sent(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(SETTING))
    fetcher = make(cookies=False)
    await fetcher.fetch(Request.to(server.url))
    await fetcher.fetch(Request.to(server.url))
    assert sent(server) == {}
    await fetcher.fetch(Request.to(server.url, cookies={"own": "3"}))
    assert sent(server) == {"own": "3"}


async def test_one_jar_for_all_proxies(serve: Serve, make: MakeFetcher) -> None:
    first, second = await serve(reply(SETTING)), await serve(reply(SETTING))
    fetcher = make()
    await fetcher.fetch(Request.to("http://site.example/", proxy=f"http://{first.host}"))
    await fetcher.fetch(Request.to("http://site.example/", proxy=f"http://{second.host}"))
    assert sent(second) == {"kept": "1", "both": "jar"}
