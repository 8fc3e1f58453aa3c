from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu.policy.meta_tags import (
    Refresh,
    RobotsDirectives,
    cut_prefix,
    find_metas,
    find_refresh,
    is_nofollow,
    may_refresh,
    parse_refresh,
    read_header,
    read_metas,
)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<meta name=robots content='a, b'>", [{"name": "robots", "content": "a, b"}]),
        ('<META NAME="Robots" Content = "x" />', [{"name": "Robots", "content": "x"}]),
        ("<meta/name=a/content=b>", [{"name": "a/content=b"}]),
        ("<meta name=a name=b>", [{"name": "a"}]),
        ("<meta content='1 > 0' x>", [{"content": "1 > 0", "x": ""}]),
        ("<meta content='a&amp;b&#x26;c'>", [{"content": "a&b&c"}]),
        ("<meta content=''>", [{"content": ""}]),
        ("<meta\n\tname\n=\n'a'\n>", [{"name": "a"}]),
        ("<meta>", [{}]),
        ("<metal name=a>", []),
        ("<meta\u3000name=a>", []),
        ("<meta name=a\u3000b>", [{"name": "a\u3000b"}]),
        ("<\u017fcript><meta name=a>", [{"name": "a"}]),
        ("<!-- <meta name=a> --><meta name=b>", [{"name": "b"}]),
        ("<!--><meta name=b>", [{"name": "b"}]),
        ("<!-- <meta name=a>", []),
        ("<script>'<meta name=a>'</script><meta name=b>", [{"name": "b"}]),
        ("<SCRIPT type=x><meta name=a></Script ><meta name=b>", [{"name": "b"}]),
        ("<noscript><meta name=a></noscript><meta name=b>", [{"name": "b"}]),
        ("<title><meta name=a></title><style><meta name=a></style><meta name=b>", [{"name": "b"}]),
        ("<noscript><meta name=a>", []),
        ("<meta name=a", []),
        ("<meta name='a", []),
        ("", []),
    ],
)
def test_meta_elements(html: str, expected: list[dict[str, str]]) -> None:
    assert list(find_metas(html)) == expected


PARTS = ["<meta ", "<!--", "-->", "<script>", "</script>", ">", "=", '"', "'", "a", " ", "/", "<", "name", "content"]


@given(st.lists(st.sampled_from(PARTS)).map("".join) | st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    for meta in find_metas(text):
        assert all(name == name.lower() for name in meta)
    find_refresh(text)
    read_metas(text, "uttu")
    parse_refresh(text)


@pytest.mark.parametrize("piece", ["<meta ", "<meta a", "<meta a='", "<!--", "<script>", "<", "<meta a=b>", "=", "' "])
def test_the_time_is_linear(piece: str) -> None:
    text = "<meta " + piece * (400_000 // len(piece))
    began = time.process_time()
    list(find_metas(text))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("0; url=/next", (0, "/next")),
        ("5;URL=/next", (5, "/next")),
        ("5; URL = '/next'", (5, "/next")),
        ('5; url="/next"; x', (5, "/next")),
        ("5; url='/next", (5, "/next")),
        ("5, url=/next", (5, "/next")),
        ("5 url=/next", (5, "/next")),
        ("5 /next", (5, "/next")),
        ("5; /next", (5, "/next")),
        ("5;'/next'", (5, "/next")),
        ("5; url", (5, "url")),
        ("5; urls.html", (5, "urls.html")),
        ("5; u=x", (5, "u=x")),
        ("  5  ;  url =  /next ", (5, "/next ")),
        ("0.9; url=/next", (0, "/next")),
        (".5; url=/next", (0, "/next")),
        ("1.2.3; url=/next", (1, "/next")),
        ("5", (5, "")),
        ("5;", (5, "")),
        ("5 ; url=", (5, "")),
        ("5;; url=/next", (5, "; url=/next")),
        ("0;url=http://a.example/?x=1;y=2", (0, "http://a.example/?x=1;y=2")),
    ],
)
def test_what_a_refresh_says(content: str, expected: tuple[float, str]) -> None:
    assert parse_refresh(content) == Refresh(*expected)


@pytest.mark.parametrize(
    "content", ["", "url=/next", "; url=/next", "-1; url=/x", "+1; url=/x", "5x; url=/next", "٣; url=/x"]
)
def test_what_is_no_refresh(content: str) -> None:
    assert parse_refresh(content) is None


def test_a_time_of_thousands_of_digits() -> None:
    refresh = parse_refresh("9" * 10_000 + "; url=/x")
    assert refresh is not None
    assert refresh.seconds > 1e200


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<meta http-equiv=refresh content='3; url=/a'>", Refresh(3, "/a")),
        ('<META content="0;URL=/a" HTTP-EQUIV="Refresh">', Refresh(0, "/a")),
        ("<meta http-equiv=' refresh ' content='0;/a'>", Refresh(0, "/a")),
        ("<meta http-equiv=refresh content=x><meta http-equiv=refresh content='1;/b'>", Refresh(1, "/b")),
        ("<meta http-equiv=refresh content='1;/a'><meta http-equiv=refresh content='1;/b'>", Refresh(1, "/a")),
        ("<base href=/x/><base href=/y/><meta http-equiv=refresh content='1;a'>", Refresh(1, "a", "/x/")),
        ("<base target=a><BASE HREF='/y/'><meta http-equiv=refresh content='1;a'>", Refresh(1, "a", "/y/")),
        ("<meta http-equiv=refresh content='1;a'><base href=/x/>", Refresh(1, "a")),
        ("<MeTa hTTp-eQUiV=reFResh content='1;/a'>", Refresh(1, "/a")),
        ("<meta name=refresh content='1;/a'>", None),
        ("<noscript><meta http-equiv=refresh content='1;/a'></noscript>", None),
        ("<!--<meta http-equiv=refresh content='1;/a'>-->", None),
        ("<meta http-equiv=refresh>", None),
    ],
)
def test_the_refresh_of_a_page(html: str, expected: Refresh | None) -> None:
    assert find_refresh(html) == expected
    assert expected is None or may_refresh(html.encode())


def test_only_the_beginning_of_a_page_counts() -> None:
    late = b"<p>" * 2000 + b"<meta http-equiv=refresh content='1;/a'>"
    assert not may_refresh(late)
    assert not may_refresh(b"<p>nothing")
    assert may_refresh(b"<META HTTP-EQUIV=rEfReSh>")
    assert may_refresh(b"q Q seq eq <meta http-eqUIv=refresh>")
    assert may_refresh(b"q Q EQ <meta http-EQuiv=refresh>")
    assert not may_refresh(b"quiv=refresh")
    assert not may_refresh(b"q <p>refresh e")
    cut = "<p>ä".encode() * 2000
    assert cut_prefix(cut).decode().endswith(">")
    assert cut_prefix(b"no tag") == b""


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (False, False)),
        (["noindex"], (False, True)),
        (["NoFollow"], (True, False)),
        (["none"], (True, True)),
        (["all"], (False, False)),
        (["noindex, nofollow"], (True, True)),
        (["noindex", "nofollow"], (True, True)),
        (["noarchive, nosnippet"], (False, False)),
        (["googlebot: noindex"], (False, False)),
        (["uttu: noindex"], (False, True)),
        (["Uttu : noindex, nofollow"], (True, True)),
        (["googlebot: noindex, nofollow"], (False, False)),
        (["googlebot: noindex, uttu: nofollow"], (True, False)),
        (["nofollow, googlebot: noindex"], (True, False)),
        (["googlebot: noindex", "nofollow"], (True, False)),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST, noindex"], (False, True)),
        (["max-snippet: 20, nofollow"], (True, False)),
        (["*: noindex"], (False, True)),
    ],
)
def test_robots_headers(values: list[str], expected: tuple[bool, bool]) -> None:
    assert read_header(values, "uttu") == RobotsDirectives(*expected)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<meta name=robots content=nofollow>", (True, False)),
        ("<meta name=ROBOTS content='NOINDEX,NOFOLLOW'>", (True, True)),
        ("<meta content=none name='robots'>", (True, True)),
        ("<meta name=uttu content=noindex>", (False, True)),
        ("<meta name=googlebot content=noindex>", (False, False)),
        ("<meta name=robots content=nofollow><meta name=uttu content=noindex>", (True, True)),
        ("<meta name=robots content='index, follow'>", (False, False)),
        ("<meta name='' content=none>", (False, False)),
        ("<meta property=robots content=none>", (False, False)),
        ("<!--<meta name=robots content=none>-->", (False, False)),
    ],
)
def test_robots_metas(html: str, expected: tuple[bool, bool]) -> None:
    assert read_metas(html, "uttu") == RobotsDirectives(*expected)


def test_a_crawler_without_a_name() -> None:
    assert read_metas("<meta name='' content=none><meta name=robots content=nofollow>", "") == RobotsDirectives(
        True, False
    )
    assert read_header([": none", "nofollow"], "") == RobotsDirectives(True, True)


def test_links_that_are_not_to_be_followed() -> None:
    assert is_nofollow("nofollow")
    assert is_nofollow("external NoFollow\tnoopener")
    assert not is_nofollow("")
    assert not is_nofollow("follow nofollower")
