from __future__ import annotations

import pytest

from uttu.fetch.cookies import CookieJar, build_cookie_header
from uttu.model import Headers, Request
from uttu.policy.redirect import redirect_request

NOW = 1_800_000_000.0


def follow(request: Request, location: str, *set_cookies: str, status: int = 302, now: float = NOW) -> Request:
    target = redirect_request(request, status, location, set_cookies, now)
    assert target is not None
    return Request.from_record(target.record())


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        *((status, "POST", "GET") for status in (301, 302, 303)),
        *((status, "POST", "POST") for status in (307, 308)),
        *(
            (status, method, method)
            for status in (301, 302, 307, 308)
            for method in ("PUT", "DELETE", "PATCH", "OPTIONS")
        ),
        *((303, method, "GET") for method in ("PUT", "DELETE", "PATCH", "OPTIONS")),
        *((status, method, method) for status in (301, 302, 303, 307, 308) for method in ("GET", "HEAD")),
    ],
)
def test_methods(status: int, method: str, expected: str) -> None:
    headers = {"Content-Type": "text/plain", "X-Kept": "1"}
    target = follow(Request.to("http://a.example/", method=method, body=b"x", headers=headers), "/to", status=status)
    assert target.method == expected
    assert target.body == (b"x" if expected == method else b"")
    assert target.headers == (headers if expected == method else {"X-Kept": "1"})


def test_a_deleted_cookie_is_not_sent_again() -> None:
    first = follow(Request.to("http://a.example/login"), "/in", "s=1; Path=/")
    assert first.cookies == {"s": "1"}
    second = follow(first, "/out", "s=; Path=/; Expires=Thu, 01-Jan-70 00:00:01 GMT")
    assert second.cookies == {}
    # Nor by a worker that has it in its jar, because it fetched the first page.
    jar = CookieJar()
    jar.adopt(first.carried)
    assert build_cookie_header(jar, Request.to("http://a.example/in")) == "s=1"
    later = follow(first, "/out", "s=; Path=/; Max-Age=0", now=NOW + 5)
    assert build_cookie_header(jar, later) == ""


@pytest.mark.parametrize(
    ("set_cookie", "location", "expected"),
    [
        ("s=1; Path=/in", "/in/x", {"s": "1"}),
        ("s=1; Path=/in", "/out", {}),
        ("s=1", "/deep/x", {"s": "1"}),
        ("s=1", "/", {}),
        ("s=1; Path=/; Secure", "/", {"s": "1"}),
        ("s=1; Path=/; Secure", "http://www.a.example/", {}),
        ("s=1; Path=/", "http://www.a.example/", {"s": "1"}),
        ("s=1; Path=/", "https://www.a.example:8443/", {"s": "1"}),
        ("s=1; Path=/", "https://a.example/", {}),
        ("s=1; Path=/; Domain=a.example", "https://a.example/", {"s": "1"}),
        ("s=1; Path=/; Domain=a.example", "https://other.a.example/", {"s": "1"}),
        ("s=1; Path=/; Domain=b.example", "https://b.example/", {}),
        ("s=1; Path=/; Domain=example", "https://b.example/", {}),
        ("s=1; Path=/; Max-Age=0", "/", {}),
        ("s=1; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "/", {}),
        ("s=1; Path=/; Max-Age=10", "/", {"s": "1"}),
        ("=1", "/", {}),
        ("s=1; Path=/; x=\x01", "/", {}),
    ],
)
def test_attributes_count(set_cookie: str, location: str, expected: dict[str, str]) -> None:
    request = Request.to("https://www.a.example/deep/login?x=1")
    assert follow(request, location, set_cookie).cookies == expected


def test_a_cookie_for_a_later_page_of_the_chain() -> None:
    login = Request.to("https://a.example/login", method="POST", body=b"user=me")
    elsewhere = follow(login, "https://sso.example/check", "s=1; Path=/in", "t=2; Path=/")
    assert elsewhere.cookies == {}
    back = follow(elsewhere, "https://a.example/back", "u=3; Path=/")
    assert back.cookies == {"t": "2"}
    home = follow(back, "/in/home", "t=4; Path=/")
    assert home.cookies == {"s": "1", "t": "4"}
    assert follow(home, "https://sso.example/").cookies == {"u": "3"}
    jar = CookieJar()
    assert build_cookie_header(jar, home) == "s=1; t=4"
    assert build_cookie_header(jar, Request.to("https://sso.example/")) == "u=3"
    assert build_cookie_header(jar, Request.to("http://a.example/in")) == "s=1; t=4"


def test_a_cookie_that_expires_while_the_request_waits() -> None:
    first = follow(Request.to("http://a.example/"), "/a", "s=1; Max-Age=60; Path=/")
    assert follow(first, "/b", now=NOW + 59).cookies == {"s": "1"}
    assert follow(first, "/b", now=NOW + 61).cookies == {}
    old = follow(Request.to("http://a.example/"), "/a", "s=1; Max-Age=60; Path=/", now=1000.0)
    assert build_cookie_header(CookieJar(), old) == ""


def test_the_spiders_cookies_stay_with_their_host() -> None:
    start = Request.to("https://a.example/", cookies={"own": "1", "lang": "de"})
    assert follow(start, "/x").cookies == {"own": "1", "lang": "de"}
    assert follow(start, "https://b.example/").cookies == {}
    assert follow(start, "https://a.example:8443/").cookies == {}
    assert follow(start, "http://a.example/").cookies == {}
    assert follow(follow(start, "https://b.example/"), "https://a.example/back").cookies == start.cookies
    assert follow(start, "/x", "own=; Max-Age=0", "lang=en").cookies == {"lang": "en"}
    assert follow(start, "/x", "own=2; Path=/y").cookies == {"own": "1", "lang": "de"}
    assert follow(follow(start, "/y/z", "own=2; Path=/y"), "/x").cookies == {"own": "1", "lang": "de"}
    with_values = Request.to("https://a.example/", cookies={"odd": "x;y=z"})
    assert follow(with_values, "/x").cookies == {"odd": "x;y=z"}


def test_a_build_cookie_header_goes_along_from_http_to_https() -> None:
    start = Request.to("http://a.example/", headers={"Cookie": "own=1", "Authorization": "x"})
    assert follow(start, "https://a.example/").headers == {"Cookie": "own=1"}
    assert follow(start, "https://b.example/").headers == {}
    assert follow(start, "https://a.example:8443/").headers == {}
    assert follow(follow(start, "https://a.example/"), "http://a.example/").headers == {}


def test_spider_cookies_win_over_the_jar_after_a_redirect() -> None:
    jar = CookieJar()
    jar.store(Headers([("set-cookie", "own=jar; Path=/"), ("set-cookie", "j=1; Path=/")]), "http://a.example/")
    target = follow(Request.to("http://a.example/", cookies={"own": "mine"}), "/x", "r=2; Path=/x")
    assert build_cookie_header(jar, target) == "r=2; j=1; own=mine"


def test_what_travels_is_bounded() -> None:
    request = Request.to("http://a.example/", cookies={"own": "1"})
    for hop in range(10):
        request = follow(request, f"/{hop}", *(f"n{hop}-{number}={'x' * 4000}; Path=/" for number in range(200)))
    assert len(request.record()) < 40_000
    assert request.cookies["own"] == "1"
    assert len(request.cookies) > 3
    request = Request.to("http://a.example/")
    for hop in range(10):
        request = follow(request, f"/{hop}", *(f"n{number}={hop}; Path=/" for number in range(10)))
    assert len(request.carried) == 10


def test_bytes_that_are_not_utf_8_travel() -> None:
    raw = b"s=\xe9\xff".decode("utf-8", "surrogateescape")
    target = follow(Request.to("http://a.example/"), "/x", raw, "u=gr\xfc\xdf")
    assert target.cookies == {"s": "\xe9\xff", "u": "gr\xfc\xdf"}
    sent = build_cookie_header(CookieJar(), target).encode("utf-8", "surrogateescape")
    assert sent == b"s=\xe9\xff; u=gr\xc3\xbc\xc3\x9f"


def test_a_redirect_without_cookies_carries_nothing() -> None:
    target = follow(Request.to("http://a.example/"), "/x")
    assert target.record() == b'{"u":"http://a.example/x","v":["http://a.example/"]}'
