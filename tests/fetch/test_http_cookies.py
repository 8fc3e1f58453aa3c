from __future__ import annotations

import time
from http.cookies import SimpleCookie

from tests.fetch.conftest import MakeFetcher, Serve
from tests.fetch.servers import Server, reply, response
from uttu.model import Request
from uttu.model.request import SetCookie

SETTING = response(b"", "Set-Cookie: kept=1; Path=/", "Set-Cookie: deep=2; Path=/deep", "Set-Cookie: both=jar; Path=/")


def sent(server: Server) -> dict[str, str]:
    return {name: morsel.value for name, morsel in SimpleCookie(server.headers.get("cookie", "")).items()}


async def test_jar_stores_cookies_of_hosts(serve: Serve, make: MakeFetcher) -> None:
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


async def test_cookie_header_of_request_is_sent_alone(serve: Serve, make: MakeFetcher) -> None:
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
    await fetcher.fetch(Request.to("http://site.example/", proxy=first.url))
    await fetcher.fetch(Request.to("http://site.example/", proxy=second.url))
    assert sent(second) == {"kept": "1", "both": "jar"}


async def test_non_ascii_cookie_bytes_are_sent_back(serve: Serve, make: MakeFetcher) -> None:
    raw = b"latin=\xe9\xff; Path=/", "utf8=gr\u00fc\u00df; Path=/".encode()
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: " + b"\r\nSet-Cookie: ".join(raw) + b"\r\nContent-Length: 0\r\n\r\n"
    server = await serve(reply(head))
    fetcher = make()
    await fetcher.fetch(Request.to(server.url))
    await fetcher.fetch(Request.to(server.url))
    assert b"latin=\xe9\xff; utf8=gr\xc3\xbc\xc3\x9f\r\n" in server.heads[-1]


async def test_cookies_of_longer_paths_and_older_ones_come_first(serve: Serve, make: MakeFetcher) -> None:
    cookies = ("z=1; Path=/", "y=2; Path=/a/b", "x=3; Path=/a", "w=4; Path=/", "z=5; Path=/")
    server = await serve(reply(response(b"", *(f"Set-Cookie: {cookie}" for cookie in cookies))))
    fetcher = make()
    await fetcher.fetch(Request.to(server.url))
    await fetcher.fetch(Request.to(server.url + "a/b/c"))
    assert server.headers["cookie"] == "y=2; x=3; z=5; w=4"


async def test_redirect_cookies_reach_another_worker(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"")))
    carried = SetCookie(server.url + "login", "s=1; Path=/in", time.time())
    request = Request.to(server.url + "in/home", cookies={"s": "1"}, carried=(carried,))
    fetcher = make()
    await fetcher.fetch(request)
    assert server.headers["cookie"] == "s=1"
    await fetcher.fetch(Request.to(server.url + "in/next"))
    assert server.headers["cookie"] == "s=1"
    await fetcher.fetch(Request.to(server.url + "out"))
    assert "cookie" not in server.headers
