from __future__ import annotations

import pytest

from weft.fetch import cookies
from weft.fetch.cookies import Jar, cookie_header
from weft.model import Headers, Request


def setting(*cookies: str) -> Headers:
    return Headers([("set-cookie", cookie) for cookie in cookies])


def sent(jar: Jar, url: str) -> str:
    return cookie_header(jar, Request.to(url))


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
def test_who_gets_a_cookie_of_a_domain(domain: str, others: bool) -> None:
    jar = Jar()
    jar.keep(setting(f"a=1; Domain={domain}"), "http://shop.example.com/")
    assert sent(jar, "http://www.example.com/") == ("a=1" if others else "")
    assert sent(jar, "http://victim.com/") == ""


def test_nobody_sets_cookies_for_all_who_share_a_suffix() -> None:
    jar = Jar()
    jar.keep(setting("a=1; Domain=co.uk", "b=2; Domain=uk"), "http://evil.co.uk/")
    assert sent(jar, "http://victim.co.uk/") == ""
    jar.keep(setting("c=3; Domain=github.io"), "http://evil.github.io/")
    assert sent(jar, "http://victim.github.io/") == ""


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "[::1]:8000", "localhost", "intranet:8080"])
def test_hosts_that_are_no_sites(host: str) -> None:
    jar = Jar()
    jar.keep(setting("a=1"), f"http://{host}/")
    assert sent(jar, f"http://{host}/deep") == "a=1"


def test_what_is_sent_is_bounded_and_own_cookies_are_not_cut() -> None:
    jar = Jar()
    for number in range(100):
        jar.keep(setting(f"n{number}={'x' * 200}"), "http://example.com/")
    header = cookie_header(jar, Request.to("http://example.com/", cookies={"own": "1"}))
    assert 7000 < len(header) <= 8100
    assert header.endswith("; own=1")


def test_a_cookie_that_is_too_long_is_left_out() -> None:
    jar = Jar()
    jar.keep(setting(f"long={'x' * 5000}", "short=1"), "http://example.com/")
    assert sent(jar, "http://example.com/") == "short=1"


def test_a_host_that_sets_more_and_more() -> None:
    jar = Jar()
    for number in range(30):
        jar.keep(setting(*(f"c{number}-{each}=1" for each in range(500))), "http://example.com/")
        assert len(jar._sites["example.com"].store.get_all_any()) <= 1_000


def test_a_host_that_sets_the_same_again_and_again() -> None:
    jar = Jar()
    jar.keep(setting("first=1"), "http://example.com/")
    for number in range(3_000):
        jar.keep(setting(f"same={number}"), "http://example.com/")
    assert sorted(sent(jar, "http://example.com/").split("; ")) == ["first=1", "same=2999"]


def test_the_sites_that_were_asked_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cookies, "_MOST_SITES", 3)
    jar = Jar()
    for site in ("a", "b", "c"):
        jar.keep(setting("n=1"), f"http://{site}.example.com/")
        jar.keep(setting("n=1"), f"http://www.{site}.net/")
        assert sent(jar, "http://www.a.net/") == "n=1"
    assert [sent(jar, f"http://www.{site}.net/") for site in ("a", "b", "c")] == ["n=1", "", "n=1"]
