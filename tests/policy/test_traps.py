"""Traps: endless URL spaces end, and nothing that real sites do is refused."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu.policy import traps
from uttu.policy.traps import MAX_OLD_DATES, MAX_SESSIONS, Traps, shape

TODAY = date(2026, 8, 19)
SITE = "https://example.com"


@pytest.mark.parametrize(
    "path",
    [
        "/a/b/a/b/a/b/",
        "/x/a/b/a/b/a/b/y",
        "/en/a/b/c/a/b/c/a/b/c/x.html",
        "/css/css/css/css/style.css",
        "/a/////b",
        "/a/1/a/2/a/3/a/4/a/5/a/6",
        "/7" * 8,
        "/" + "/".join(f"s{i}" for i in range(31)),
        "/?" + "&".join(f"p{i}=1" for i in range(41)),
        "/?" + "&".join(f"brand={i}" for i in range(13)),
        "/?sort=x&page=2&sort=x&sort=x",
        "/?a=1?a=1?a=1",
        "/calendar/2041/7/",
        "/calendar?month=2029-01",
        "/events/2041/07/",
        "/events/2041-07/",
        "/2029/01/01/",
        "/events/2041-07-12",
        "/day?d=2041-07-12",
        "/show?year=2041&month=7",
        "/show?cal_month=12&cal_year=9999",
        "/show?date=20410712",
        "/show?startDate=2041/07/12",
        "/show?tribe-bar-date=2041-07-01",
    ],
)
def test_traps(path: str) -> None:
    assert Traps(TODAY).refuse(SITE + path) is not None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/a/b/c/d/e/f/g/h/i/j",
        "/a/b/a/b/",
        "/a/a/a",
        "/en/products/en/shoes",
        "/img/000/000/000/000/012.jpg",
        "/tiles/4/0/0/0.png",
        "/web/2020/http://example.org//a//b",
        "/2005/03/",
        "/2005/03/12/a-title/",
        "/1999/12/31/the-end-is-near",
        "/2028/12/31/",
        "/1969-07-20-moon",
        "/thread/2041/10",
        "/thread/2041/2",
        "/thread/5000/07",
        "/p/20410712",
        "/sku-9876-10-12",
        "/archive/2003/1",
        "/calendar/2026/8/",
        "/calendar/2027/12/",
        "/cars?year=1965",
        "/cars?year=2041",
        "/show?year=2024&month=7",
        "/search?candidate=204107",
        "/search?q=a&q=b&q=c",
        "/search?a=1&a=1",
        "/?" + "&".join(f"p{i}=1" for i in range(40)),
        "/?" + "&".join(f"brand={i}" for i in range(12)),
        "/?&&&&&&",
        "/story?sid=1234",
        "/bills?session=2019",
        "/b/3f786850e387550fdab836ed7e6dc881de23001b",
        "/Agenda-2030/goals",
        "/dog/dog/cat/dog/dog",
    ],
)
def test_ordinary_urls(path: str) -> None:
    assert Traps(TODAY).refuse(SITE + path) is None


def test_numbers_are_never_a_trap() -> None:
    guard = Traps(TODAY)
    for i in range(1, 12_000):
        for path in (f"/p/{i}", f"/list?page={i}", f"/thread/{i}/page/{i % 50}", f"/{i}/{i}", f"/t/{i}/{1 + i % 30}"):
            assert guard.refuse(SITE + path) is None, path


def test_archives_of_blogs_are_never_a_trap() -> None:
    guard = Traps(TODAY)
    day = date(1990, 1, 1)
    while day <= TODAY:
        for form in ("/%Y/%m/", "/%Y/%m/%d/", "/archive/%Y-%m-%d", "/calendar/%Y/%m/%d", "/a?year=%Y&month=%m&day=%d"):
            assert guard.refuse(SITE + day.strftime(form)) is None
        day += timedelta(days=5)


@pytest.mark.parametrize("form", ["/calendar/{0}/{1}", "/{0}/{1:02}/", "/ev?year={0}&month={1}", "/ev/{0}-{1:02}-01"])
def test_a_calendar_that_is_walked_forward_ends(form: str) -> None:
    guard = Traps(TODAY)
    refused = [
        year
        for year, month in product(range(TODAY.year, 2100), range(1, 13))
        if guard.refuse(SITE + form.format(year, month)) is not None
    ]
    assert refused
    assert refused[0] == TODAY.year + 3


def test_old_dates_have_a_budget_per_shape() -> None:
    guard = Traps(TODAY)
    urls = [f"{SITE}/day/{date(1950, 1, 1) + timedelta(days=i)}" for i in range(MAX_OLD_DATES + 100)]
    verdicts = [guard.refuse(url) for url in urls]
    assert [verdict is None for verdict in verdicts] == [True] * MAX_OLD_DATES + [False] * 100
    assert [guard.refuse(url) for url in urls] == verdicts
    assert guard.refuse(f"{SITE}/issue/1950-01-01") is None, "another shape has its own"


def test_articles_of_an_old_newspaper_are_not_one_shape() -> None:
    guard = Traps(TODAY)
    words = "".join
    for i, letters in enumerate(product("abcdefgh", repeat=4)):
        url = f"{SITE}/1955/{1 + i % 12:02}/{1 + i % 28:02}/{words(letters)}.html"
        assert guard.refuse(url) is None


def sessions(form: str, count: int) -> list[str]:
    return [
        SITE + form.format(f"{i * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128):032x}") for i in range(1, count + 1)
    ]


@pytest.mark.parametrize(
    "form",
    [
        "/a?sid={}",
        "/a?t=5&PHPSESSID={}",
        "/a;jsessionid={}?x=1",
        "/a;jsessionid={}",
        "/(S({}))/a.aspx",
        "/a?session_id={}&b=2",
    ],
)
def test_one_page_under_many_session_ids(form: str) -> None:
    guard = Traps(TODAY)
    urls = sessions(form, 50)
    verdicts = [guard.refuse(url) is None for url in urls]
    assert verdicts == [True] * MAX_SESSIONS + [False] * (50 - MAX_SESSIONS)
    assert [guard.refuse(url) is None for url in urls] == verdicts


def test_many_pages_under_one_session_id() -> None:
    guard = Traps(TODAY)
    for i in range(5000):
        assert guard.refuse(f"{SITE}/topic?t={i}&sid=8f14e45fceea167a5a36dedd4bea2543") is None


def test_shapes() -> None:
    assert shape(SITE + "/p/123/x45?b=1&a=2") == SITE + "/p/0/x0?a&b"
    assert shape("https://www2.example.com/8f14e45fceea167a/") == "https://www2.example.com/*/?"
    assert shape(SITE) == SITE + "?"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traps, "MAX_PAGES", 10)
    monkeypatch.setattr(traps, "MAX_SHAPES", 10)
    guard = Traps(TODAY)
    for i in range(100):
        guard.refuse(f"{SITE}/a?t={i}&sid=8f14e45fceea167a5a36dedd4bea2543")
        guard.refuse(f"{SITE}/{'x' * i}/1950-01-01")
        assert len(guard._sessions) <= 10
        assert len(guard._old_dates) <= 10


@given(st.text())
def test_no_url_raises_and_verdicts_are_stable(text: str) -> None:
    guard = Traps(TODAY)
    for url in (text, SITE + "/" + text, SITE + "/?" + text):
        assert guard.refuse(url) == guard.refuse(url)


segment = st.from_regex(r"[a-z][a-z0-9-]{0,11}", fullmatch=True)


@given(st.lists(segment, unique=True, max_size=20), st.dictionaries(segment, st.integers(0, 10**9), max_size=10))
def test_paths_of_different_words_pass(path: list[str], query: dict[str, int]) -> None:
    url = SITE + "/" + "/".join(path)
    if query:
        url += "?" + "&".join(f"p-{name}={value}" for name, value in query.items())
    assert Traps(TODAY).refuse(url) is None


@given(st.lists(segment, min_size=1, max_size=4), st.lists(segment, max_size=3), st.integers(4, 7))
def test_a_sequence_that_goes_on_repeating_is_refused(cycle: list[str], before: list[str], times: int) -> None:
    assert Traps(TODAY).refuse(SITE + "/" + "/".join(before + cycle * times)) is not None
