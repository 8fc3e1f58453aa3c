from __future__ import annotations

from datetime import UTC, datetime
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu.model import Request
from uttu.policy.cookies import (
    MAX_AGE_SECONDS,
    Cookie,
    CookieTarget,
    belongs,
    default_path,
    looks_like_login,
    parse_cookie_date,
    parse_set_cookie,
    path_matches,
    to_text,
    to_wire,
)

NOW = datetime(2026, 11, 17, tzinfo=UTC).timestamp()
PAGE = "http://home.example.org:8888/cookie-parser?test"
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def parse(header: str, url: str = PAGE) -> Cookie | None:
    return parse_set_cookie(header, CookieTarget.of(url), NOW)


def unix(*date: int) -> float:
    return datetime(*date, tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]


# What sites write into Expires. The first group are the examples of the HTTP State working group.
DATES = [
    ("Mon, 10-Dec-2007 17:02:24 GMT", (2007, 12, 10, 17, 2, 24)),
    ("Wed, 09 Dec 2009 16:27:23 GMT", (2009, 12, 9, 16, 27, 23)),
    ("Thursday, 01-Jan-1970 00:00:00 GMT", (1970, 1, 1)),
    ("Mon Dec 10 16:32:30 2007 GMT", (2007, 12, 10, 16, 32, 30)),
    ("Wednesday, 01-Jan-10 00:00:00 GMT", (2010, 1, 1)),
    ("Mon, 10-Dec-07 20:35:03 GMT", (2007, 12, 10, 20, 35, 3)),
    ("Wed, 1 Jan 2020 00:00:00 GMT", (2020, 1, 1)),
    ("Saturday, 8-Dec-2012 21:24:09 GMT", (2012, 12, 8, 21, 24, 9)),
    ("Thu, 31 Dec 23:55:55 2037 GMT", (2037, 12, 31, 23, 55, 55)),
    ("Sun,  9 Dec 2012 13:42:05 GMT", (2012, 12, 9, 13, 42, 5)),
    ("Wed Dec 12 2007 08:44:07 GMT-0500 (EST)", (2007, 12, 12, 8, 44, 7)),
    ("Sun, 1-Jan-1995 00:00:00 GMT", (1995, 1, 1)),
    ("Wednesday, 01-Jan-10 0:0:00 GMT", (2010, 1, 1)),
    ("Thu, 10 Dec 2009 13:57:2 GMT", (2009, 12, 10, 13, 57, 2)),
    ("Sat, 15-Apr-17 21:01:22 GMT", (2017, 4, 15, 21, 1, 22)),
    ("Thu, 19-Apr-2007 16:00:00 GMT", (2007, 4, 19, 16)),
    ("Wed, 25 Apr 2007 21:02:13 GMT", (2007, 4, 25, 21, 2, 13)),
    ("Thu, 19/Apr\\2007 16:00:00 GMT", (2007, 4, 19, 16)),
    ("Fri, 1 Jan 2010 01:01:50 GMT", (2010, 1, 1, 1, 1, 50)),
    ("Wednesday, 1-Jan-2003 00:00:00 GMT", (2003, 1, 1)),
    (", 1-Jan-2003 00:00:00 GMT", (2003, 1, 1)),
    (" 1-Jan-2003 00:00:00 GMT", (2003, 1, 1)),
    ("1-Jan-2003 00:00:00 GMT", (2003, 1, 1)),
    ("Wed,18-Apr-07 22:50:12 GMT", (2007, 4, 18, 22, 50, 12)),
    ("WillyWonka  , 18-Apr-07 22:50:12 GMT", (2007, 4, 18, 22, 50, 12)),
    ("WillyWonka  , 18-Apr-07 22:50:12", (2007, 4, 18, 22, 50, 12)),
    ("WillyWonka  ,  18-apr-07   22:50:12", (2007, 4, 18, 22, 50, 12)),
    ("Mon, 18-Apr-1977 22:50:13 GMT", (1977, 4, 18, 22, 50, 13)),
    ("Mon, 18-Apr-77 22:50:13 GMT", (1977, 4, 18, 22, 50, 13)),
    ('"Sat, 15-Apr-17\\"21:01:22\\"GMT"', (2017, 4, 15, 21, 1, 22)),
    ("Partyday, 18- April-07 22:50:12", (2007, 4, 18, 22, 50, 12)),
    ("Partyday, 18 - Apri-07 22:50:12", (2007, 4, 18, 22, 50, 12)),
    ("Wednes, 1-Januar-2003 00:00:00 GMT", (2003, 1, 1)),
    ("Sat, 15-Apr-17 21:01:22", (2017, 4, 15, 21, 1, 22)),
    ("Sat, 15-Apr-17 21:01:22 GMT-2", (2017, 4, 15, 21, 1, 22)),
    ("Sat, 15-Apr-17 21:01:22 GMT BLAH", (2017, 4, 15, 21, 1, 22)),
    ("Sat, 15-Apr-17 21:01:22 GMT-0400 (EDT)", (2017, 4, 15, 21, 1, 22)),
    ("Sat, 15-Apr-17 21:01:22 DST", (2017, 4, 15, 21, 1, 22)),
    ("Sat, 15-Apr-17 21:01:22 -0400", (2017, 4, 15, 21, 1, 22)),
    ("Sat, 15-Apr-17 21:01:22 (hello there)", (2017, 4, 15, 21, 1, 22)),
    ("Sat, 15-Apr-17 21:01:22 11:22:33", (2017, 4, 15, 21, 1, 22)),
    ("Sat, 15-Apr-17 ::00 21:01:22", (2017, 4, 15, 21, 1, 22)),
    ("Sat, 15-Apr-17 boink:z 21:01:22", (2017, 4, 15, 21, 1, 22)),
    ("Thu Apr 18 22:50:12 2007 GMT", (2007, 4, 18, 22, 50, 12)),
    ("22:50:12 Thu Apr 18 2007 GMT", (2007, 4, 18, 22, 50, 12)),
    ("Thu 22:50:12 Apr 18 2007 GMT", (2007, 4, 18, 22, 50, 12)),
    ("Thu Apr 22:50:12 18 2007 GMT", (2007, 4, 18, 22, 50, 12)),
    ("Thu Apr 18 2007 22:50:12 GMT", (2007, 4, 18, 22, 50, 12)),
    ("Thu Apr 18 2007 GMT 22:50:12", (2007, 4, 18, 22, 50, 12)),
    ("15-Sat, Apr-17 21:01:22 GMT", (2017, 4, 15, 21, 1, 22)),
    ("15-Sat, Apr 21:01:22 GMT 17", (2017, 4, 15, 21, 1, 22)),
    ("15-Sat, Apr 21:01:22 GMT 2017", (2017, 4, 15, 21, 1, 22)),
    ("15 Apr 21:01:22 2017", (2017, 4, 15, 21, 1, 22)),
    ("15 17 Apr 21:01:22", (2017, 4, 15, 21, 1, 22)),
    ("Apr 15 17 21:01:22", (2017, 4, 15, 21, 1, 22)),
    ("Apr 15 21:01:22 17", (2017, 4, 15, 21, 1, 22)),
    ("2017 April 15 21:01:22", (2017, 4, 15, 21, 1, 22)),
    ("15 April 2017 21:01:22", (2017, 4, 15, 21, 1, 22)),
    ("Thu, 01 Jan 1970 00:00:00 UTC", (1970, 1, 1)),
    ("Thu, 01 Jan 1970 00:00:00 +0000", (1970, 1, 1)),
    ("Thu, 01-Jan-70 00:00:01 GMT", (1970, 1, 1, 0, 0, 1)),
    ("Fri, 31-Dec-69 23:59:59 GMT", (2069, 12, 31, 23, 59, 59)),
    ("Mon, 01-Jan-1900 00:00:00 GMT", (1900, 1, 1)),
    ("Mon, 01-Jan-1601 00:00:00 GMT", (1601, 1, 1)),
    ("1 January 1990 1:2:3", (1990, 1, 1, 1, 2, 3)),
    ("01 Jan 1990 23:59:59.999 GMT", (1990, 1, 1, 23, 59, 59)),
    ("Thu,01,Jan,1970,00:00:00,GMT", (1970, 1, 1)),
    ("Thu\t01\tJan\t1970\t00:00:00", (1970, 1, 1)),
    ("Sun Nov 06 08:49:37 1994", (1994, 11, 6, 8, 49, 37)),
    ("29 Feb 2004 00:00:00", (2004, 2, 29)),
]


@pytest.mark.parametrize(("text", "expected"), DATES)
def test_dates_that_sites_write(text: str, expected: tuple[int, ...]) -> None:
    assert parse_cookie_date(text) == unix(*expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "IAintNoDateFool",
        "Sat, 15-Apr-17 91:22:33 21:01:22",
        "98 April 17 21:01:22",
        "Thu, 012-Aug-2008 20:49:07 GMT",
        "Thu, 12-Aug-31841 20:49:07 GMT",
        "Thu, 12-Aug-9999999999 20:49:07 GMT",
        "Thu, 999999999999-Aug-2007 20:49:07 GMT",
        "Thu, 12-Aug-2007 20:61:99999999999 GMT",
        "Mon, 01-Jan-2011 00: 00:00 GMT",
        "Mon, 01-Jan-1600 00:00:00 GMT",
        "31 Feb 2010 00:00:00",
        "29 Feb 2005 00:00:00",
        "0 Jan 2010 00:00:00",
        "1 Jan 2010 24:00:00",
        "1 Jan 2010 00:60:00",
        "1 Jan 2010 00:00:60",
        "1 Jan 2010",
        "2010-01-01T00:00:00Z",
        "1 Jan 2010 00:00",
        "1 Jän 2010 00:00:00",
        "١ Jan ٢٠١٠ 00:00:00",
    ],
)
def test_what_is_no_date(text: str) -> None:
    assert parse_cookie_date(text) is None


@given(
    moment=st.datetimes(datetime(1601, 1, 1), datetime(9999, 12, 31)),
    order=st.permutations(["day", "month", "time"]),
    separator=st.sampled_from([" ", "-", ", ", "/", "\t", '"', "; "]),
    upper=st.booleans(),
    tail=st.sampled_from(["", "GMT", "+0200", "(CET)"]),
)
def test_the_parts_of_a_date_stand_in_any_order(
    moment: datetime, order: list[str], separator: str, upper: bool, tail: str
) -> None:
    month = MONTHS[moment.month - 1]
    parts = {"day": str(moment.day), "month": month.upper() if upper else month, "time": f"{moment:%H:%M:%S}"}
    text = separator.join([*(parts[name] for name in order), f"{moment.year:04}", tail])
    assert parse_cookie_date(text) == moment.replace(microsecond=0, tzinfo=UTC).timestamp()


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    parse_cookie_date(text)
    wire = to_wire(text.encode("utf-8", "ignore").decode())
    cookie = parse_set_cookie(wire, CookieTarget.of(PAGE), NOW)
    assert cookie is None or len(cookie.name) + len(cookie.value) <= 4096


@given(st.binary())
def test_bytes_survive(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    assert to_wire(text).encode("latin-1") == raw
    assert to_text(to_wire(text)) == text


@pytest.mark.parametrize(
    ("attributes", "expires"),
    [
        ("", inf),
        ("max-age=10", NOW + 10),
        ("Max-Age=0", -inf),
        ("max-age=-1", -inf),
        ("max-age=-99999999999999999999", -inf),
        ("max-age=000", -inf),
        (f"max-age={'9' * 1000}", NOW + MAX_AGE_SECONDS),
        (f"max-age={'9' * 2000}", inf),
        ("max-age=", inf),
        ("max-age", inf),
        ("max-age=-", inf),
        ("max-age=+5", inf),
        ("max-age=5.5", inf),
        ("max-age=50,399", inf),
        ('max-age="5"', inf),
        ("max-age=٣", inf),
        ("max-age=5; max-age=7", NOW + 7),
        ("max-age=5; max-age=x", NOW + 5),
        ("max-age=5; expires=Thu, 01 Jan 1970 00:00:00 GMT", NOW + 5),
        ("expires=Thu, 01 Jan 1970 00:00:00 GMT; max-age=5", NOW + 5),
        ("expires=Thu, 01 Jan 2037 00:00:00 GMT; max-age=0", -inf),
        ("expires=Thu, 01 Jan 1970 00:00:00 GMT; max-age=x", 0.0),
        ("expires=Thu, 01 Jan 1970 00:00:00 GMT; expires=never", 0.0),
        ("expires=Tue, 17 Nov 2026 01:00:00 GMT", NOW + 3600),
        ("expires=Thu, 01 Jan 2099 00:00:00 GMT", NOW + MAX_AGE_SECONDS),
        ("expires=-1", inf),
        (f"expires=Thu, 01 Jan 1970 00:00:00 GMT{' ' * 1000}x", inf),
    ],
)
def test_how_long_a_cookie_lives(attributes: str, expires: float) -> None:
    cookie = parse(f"a=1; {attributes}")
    assert cookie is not None
    assert cookie.expires == expires


def test_sizes() -> None:
    assert parse(f"n={'x' * 4095}") is not None
    assert parse(f"n={'x' * 4096}") is None
    assert parse(f"{'n' * 4096}=") is not None
    assert (
        parse(f"n={'x' * 4000}; Domain=example.org; Path=/{'p' * 900}; Expires=Thu, 01 Jan 2037 00:00:00 GMT")
        is not None
    )
    assert (cookie := parse(f"n=1; Path=/{'p' * 1024}")) is not None
    assert cookie.path == "/"
    assert (cookie := parse(f"n=1; Path=/{'p' * 1023}")) is not None
    assert len(cookie.path) == 1024


@pytest.mark.parametrize("character", [*map(chr, range(9)), *map(chr, range(10, 32)), "\x7f"])
def test_control_characters(character: str) -> None:
    assert parse(f"a=1{character}2") is None
    assert parse(f"a{character}=1") is None
    assert parse(f"a=1; Path=/{character}") is None


def test_a_tab_is_space() -> None:
    assert (cookie := parse("\ta\t=\tb\tc\t;\tPath\t=\t/x\t")) is not None
    assert (cookie.name, cookie.value, cookie.path) == ("a", "b\tc", "/x")


@pytest.mark.parametrize(
    ("header", "url", "kept"),
    [
        ("__Secure-a=1; Secure", "https://example.org/", True),
        ("__Secure-a=1", "https://example.org/", False),
        ("__Secure-a=1; Secure", "http://example.org/", False),
        ("__SECURE-a=1", "https://example.org/", False),
        ("__Host-a=1; Secure; Path=/", "https://example.org/", True),
        ("__Host-a=1; Secure", "https://example.org/", False),
        ("__Host-a=1; Secure; Path=/x", "https://example.org/x", False),
        ("__Host-a=1; Secure; Path=/; Domain=example.org", "https://example.org/", False),
        ("__Host-a=1; Path=/", "https://example.org/", False),
        ("__host-a=1; Path=/", "https://example.org/", False),
        ("a=1; Secure", "http://example.org/", False),
        ("a=1; HttpOnly; SameSite=Strict; Partitioned; Priority=High", "http://example.org/", True),
    ],
)
def test_what_may_be_set(header: str, url: str, kept: bool) -> None:
    assert (parse(header, url) is not None) is kept


@pytest.mark.parametrize(
    ("domain", "url", "stored"),
    [
        ("", "http://www.example.org/", ("www.example.org", True)),
        ("example.org", "http://www.example.org/", ("example.org", False)),
        (".example.org", "http://www.example.org/", ("example.org", False)),
        ("..example.org", "http://www.example.org/", None),
        ("EXAMPLE.ORG", "http://www.example.org/", ("example.org", False)),
        ("example.org.", "http://www.example.org/", None),
        ("example.org.", "http://www.example.org./", ("example.org.", False)),
        ("org.", "http://www.example.org./", None),
        ("org", "http://www.example.org/", None),
        (".org", "http://www.example.org/", None),
        (".", "http://www.example.org/", ("www.example.org", True)),
        ("co.uk", "http://shop.co.uk/", None),
        ("github.io", "http://evil.github.io/", None),
        ("github.io", "http://github.io/", ("github.io", True)),
        ("localhost", "http://localhost:8000/", ("localhost", True)),
        ("intranet", "http://www.intranet/", None),
        ("127.0.0.1", "http://127.0.0.1:8000/", ("127.0.0.1", False)),
        ("0.0.1", "http://127.0.0.1:8000/", None),
        ("1", "http://127.0.0.1:8000/", None),
        ("[::1]", "http://[::1]:8000/", ("[::1]", False)),
        ("www.example.org", "http://example.org/", None),
        ("ample.org", "http://example.org/", None),
        ("example.org:80", "http://example.org/", None),
        ('"example.org"', "http://example.org/", None),
        ("xn--bcher-kva.example.org", "http://a.xn--bcher-kva.example.org/", ("xn--bcher-kva.example.org", False)),
        ("b\xfccher.example.org", "http://a.xn--bcher-kva.example.org/", None),
    ],
)
def test_domains(domain: str, url: str, stored: tuple[str, bool] | None) -> None:
    cookie = parse(f"a=1; Domain={domain}", url)
    assert (None if cookie is None else (cookie.domain, cookie.host_only)) == stored


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/", "/"), ("/a", "/"), ("/a/", "/a"), ("/a/b", "/a"), ("/a/b/", "/a/b"), ("", "/"), ("a/b", "/"), ("//", "/")],
)
def test_default_paths(path: str, expected: str) -> None:
    assert default_path(path) == expected


@pytest.mark.parametrize(
    ("path", "cookie_path", "expected"),
    [
        ("/", "/", True),
        ("/a", "/", True),
        ("/a", "/a", True),
        ("/a/", "/a", True),
        ("/a/b", "/a", True),
        ("/ab", "/a", False),
        ("/a", "/a/", False),
        ("/a/", "/a/", True),
        ("/a//b", "/a/", True),
        ("/A", "/a", False),
        ("/%61", "/a", False),
    ],
)
def test_paths(path: str, cookie_path: str, expected: bool) -> None:
    assert path_matches(path, cookie_path) is expected


def test_the_query_is_no_part_of_the_path() -> None:
    assert (cookie := parse("a=1", "http://example.org/a/b?x=/c/d")) is not None
    assert cookie.path == "/a"
    assert not belongs(cookie, CookieTarget.of("http://example.org/?/a/"))
    assert belongs(cookie, CookieTarget.of("http://example.org:99/a?x"))


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request.to("http://a.example/", method="POST", body=b"user=me"), True),
        (Request.to("http://a.example/", method="PUT"), True),
        (Request.to("http://a.example/", headers={"AUTHORIZATION": "Basic x"}), True),
        (Request.to("http://a.example/account/Login"), True),
        (Request.to("http://a.example/x?session=1"), True),
        (Request.to("http://a.example/x?user=a&password=b"), True),
        (Request.to("http://a.example/"), False),
        (Request.to("http://login.a.example/"), True),
        (Request.to("http://a.example/x?lang=de"), False),
    ],
)
def test_what_looks_like_a_login(request_: Request, expected: bool) -> None:
    assert looks_like_login(request_) is expected
