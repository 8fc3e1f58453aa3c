from __future__ import annotations

import time

import pytest

from uttu.fetch import cookies as cookies_module
from uttu.fetch.cookies import CookieJar, build_cookie_header
from uttu.model import Headers, Request
from uttu.model.request import SetCookie


def setting(*cookies: str) -> Headers:
    return Headers([("set-cookie", cookie) for cookie in cookies])


def sent(jar: CookieJar, url: str) -> str:
    return build_cookie_header(jar, Request.to(url))


@pytest.mark.parametrize(
    ("domain", "others"),
    [
        ("shop.example.com", False),
        (".example.com", True),
        ("EXAMPLE.com", True),
        ("com", False),
        ("co.uk", False),
        ("other.com", False),
    ],
)
def test_cookie_domains(domain: str, others: bool) -> None:
    jar = CookieJar()
    jar.store(setting(f"a=1; Domain={domain}"), "http://shop.example.com/")
    assert sent(jar, "http://www.example.com/") == ("a=1" if others else "")
    assert sent(jar, "http://victim.com/") == ""


def test_cookies_for_public_suffixes_are_refused() -> None:
    jar = CookieJar()
    jar.store(setting("a=1; Domain=co.uk", "b=2; Domain=uk"), "http://evil.co.uk/")
    assert sent(jar, "http://victim.co.uk/") == ""
    jar.store(setting("c=3; Domain=github.io"), "http://evil.github.io/")
    assert sent(jar, "http://victim.github.io/") == ""


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "[::1]:8000", "localhost", "intranet:8080"])
def test_cookies_of_hosts_without_a_domain(host: str) -> None:
    jar = CookieJar()
    jar.store(setting("a=1"), f"http://{host}/")
    assert sent(jar, f"http://{host}/deep") == "a=1"


def test_cookie_header_length_is_bounded() -> None:
    jar = CookieJar()
    for number in range(100):
        jar.store(setting(f"n{number}={'x' * 200}"), "http://example.com/")
    header = build_cookie_header(jar, Request.to("http://example.com/", cookies={"own": "1"}))
    assert 7000 < len(header) <= 8100
    assert header.endswith("; own=1")


def test_a_cookie_that_is_too_long_is_left_out() -> None:
    jar = CookieJar()
    jar.store(setting(f"long={'x' * 5000}", "short=1"), "http://example.com/")
    assert sent(jar, "http://example.com/") == "short=1"


def test_cookies_per_site_are_bounded() -> None:
    jar = CookieJar()
    for number in range(30):
        jar.store(setting(*(f"c{number}-{each}=1" for each in range(500))), "http://example.com/")
        assert len(jar.find_matching("http://example.com/")) <= 1_000
    assert jar.find_matching("http://example.com/")[-1].name == "c29-99"


def test_deleted_cookies_make_room_first() -> None:
    jar = CookieJar()
    jar.store(setting("first=1"), "http://example.com/")
    for number in range(20):
        jar.store(setting(*(f"c{number}-{each}=1" for each in range(100))), "http://example.com/")
        jar.store(setting(*(f"c{number}-{each}=; Max-Age=0" for each in range(100))), "http://example.com/")
    assert sent(jar, "http://example.com/") == "first=1"


def test_large_cookies_of_many_sites_are_bounded() -> None:
    jar = CookieJar()
    for number in range(200):
        for part in range(3):
            cookies = setting(*(f"n{part}-{each}={'x' * 4000}" for each in range(100)))
            jar.store(cookies, f"http://site{number}.com/")
    assert jar._bytes <= cookies_module._MAX_BYTES
    assert jar._bytes == sum(site.bytes for site in jar._sites.values())
    assert sent(jar, "http://site199.com/") != ""
    assert sent(jar, "http://site0.com/") == ""


def test_a_request_that_is_older_than_the_jar() -> None:
    jar = CookieJar()
    jar.store(setting("a=new", "b=; Max-Age=0"), "http://example.com/")
    carried = tuple(SetCookie("http://example.com/", text, 1000.0) for text in ("a=old", "b=old", "c=old"))
    request = Request.to("http://example.com/", cookies={"a": "old", "b": "old", "c": "old"}, carried=carried)
    assert build_cookie_header(jar, request) == "a=new; c=old"
    assert build_cookie_header(None, request) == "a=old; b=old; c=old"


def test_carried_cookies_keep_their_paths() -> None:
    jar = CookieJar()
    at = time.time()
    carried = (
        SetCookie("https://example.com/login", "s=1; Path=/in; Secure", at),
        SetCookie("https://a.com/", "x=1", at),
    )
    request = Request.to("https://example.com/in/x", cookies={"s": "1"}, carried=carried)
    assert build_cookie_header(jar, request) == "s=1"
    assert sent(jar, "https://example.com/") == ""
    assert sent(jar, "http://example.com/in/") == ""
    assert sent(jar, "https://a.com/") == "x=1"


def test_plain_http_does_not_replace_or_hide_secure_cookies() -> None:
    jar = CookieJar()
    jar.store(setting("s=1; Secure; Path=/in"), "https://www.example.com/in/")
    jar.store(
        setting("s=evil; Path=/in", "s=evil; Path=/in/x", "s=evil; Path=/in; Domain=example.com"),
        "http://www.example.com/",
    )
    assert sent(jar, "https://www.example.com/in/x") == "s=1"
    jar.store(setting("s=other; Path=/"), "http://www.example.com/")
    assert sent(jar, "https://www.example.com/in/x") == "s=1; s=other"
    jar.store(setting("s=; Max-Age=0; Secure; Path=/in"), "https://www.example.com/in/")
    jar.store(setting("s=2; Path=/in"), "http://www.example.com/")
    assert sent(jar, "https://www.example.com/in/x") == "s=2; s=other"


def test_cookie_keeps_its_order_until_deleted() -> None:
    jar = CookieJar()
    jar.store(setting("a=1", "b=2"), "http://example.com/")
    jar.store(setting("a=3"), "http://example.com/")
    assert sent(jar, "http://example.com/") == "a=3; b=2"
    jar.store(setting("a=; Expires=Thu, 01-Jan-70 00:00:01 GMT"), "http://example.com/")
    assert sent(jar, "http://example.com/") == "b=2"
    jar.store(setting("a=4"), "http://example.com/")
    assert sent(jar, "http://example.com/") == "b=2; a=4"


def test_a_cookie_that_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    jar = CookieJar()
    jar.store(setting("a=1; Max-Age=10", "b=2"), "http://example.com/")
    assert sent(jar, "http://example.com/") == "a=1; b=2"
    later = time.time() + 11
    monkeypatch.setattr(time, "time", lambda: later)
    assert sent(jar, "http://example.com/") == "b=2"


def test_repeated_cookie_takes_no_room() -> None:
    jar = CookieJar()
    jar.store(setting("first=1"), "http://example.com/")
    for number in range(3_000):
        jar.store(setting(f"same={number}"), "http://example.com/")
    assert sorted(sent(jar, "http://example.com/").split("; ")) == ["first=1", "same=2999"]


def test_jar_keeps_the_most_recent_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cookies_module, "_MAX_SITES", 3)
    jar = CookieJar()
    for site in ("a", "b", "c"):
        jar.store(setting("n=1"), f"http://{site}.example.com/")
        jar.store(setting("n=1"), f"http://www.{site}.net/")
        assert sent(jar, "http://www.a.net/") == "n=1"
    assert [sent(jar, f"http://www.{site}.net/") for site in ("a", "b", "c")] == ["n=1", "", "n=1"]
