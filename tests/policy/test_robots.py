"""robots.txt: whose lines count, what they forbid, and that nothing breaks the reader."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protego import Protego

from uttu.policy.robots import ALLOW_ALL, MAX_BYTES, Robots, classify_status, dump, load, parse, product_token

AGENT = "Uttu/0.1 (web crawler)"
HOST = "https://example.com"


def allowed(robots: str | bytes | Robots, path: str, agent: str = AGENT) -> bool:
    if not isinstance(robots, Robots):
        robots = parse(robots.encode() if isinstance(robots, str) else robots)
    return robots.allowed(HOST + path, agent)


@pytest.mark.parametrize(
    ("agent", "token"),
    [
        (AGENT, "uttu"),
        ("Uttu", "uttu"),
        ("my-bot_2.0", "my-bot_2.0"),
        ("Mozilla/5.0 (compatible; Uttu/0.1; +https://example.com)", "uttu"),
        ("Mozilla/5.0 (X11; Linux x86_64)", "mozilla"),
        ("", ""),
        ("(odd)", ""),
    ],
)
def test_product_token(agent: str, token: str) -> None:
    assert product_token(agent) == token


def test_rules_for_everyone_hold_for_us() -> None:
    text = "User-agent: *\nDisallow: /private\nAllow: /private/open\n"
    assert allowed(text, "/")
    assert not allowed(text, "/private/a")
    assert allowed(text, "/private/open/a")


def test_our_own_group_replaces_the_one_for_everyone() -> None:
    text = "User-agent: *\nDisallow: /\n\nUser-agent: UTTU\nDisallow: /b\n"
    assert allowed(text, "/a")
    assert not allowed(text, "/b")
    assert not allowed(text, "/a", "OtherBot/1.0")


def test_own_group_without_rules_allows_everything() -> None:
    assert allowed("User-agent: *\nDisallow: /\n\nUser-agent: uttu\nDisallow:\n", "/a")


def test_groups_of_one_name_are_one_group() -> None:
    text = "User-agent: uttu\nDisallow: /a\n\nUser-agent: x\nDisallow: /b\n\nUser-agent: uttu\nDisallow: /c\n"
    assert [allowed(text, path) for path in ("/a", "/b", "/c")] == [False, True, False]


@pytest.mark.parametrize("name", ["we", "uttuish", "w", "eft", "web crawler", "0.1"])
def test_similar_user_agent_is_another_crawler(name: str) -> None:
    assert allowed(f"User-agent: {name}\nDisallow: /\n", "/a")


@pytest.mark.parametrize("name", ["uttu", "Uttu/0.1", "uttu/2", "uttu*", "UTTU # us", "x\nUser-agent: uttu"])
def test_ways_to_write_our_name(name: str) -> None:
    assert not allowed(f"User-agent: {name}\nDisallow: /\n", "/a")


def test_unknown_lines_and_sitemaps_do_not_end_a_group() -> None:
    text = "User-agent: a\nColour: green\nSitemap: /s.xml\nUser-agent: uttu\nFoo: bar\n\nDisallow: /x\n"
    assert not allowed(text, "/x")
    assert not allowed(text, "/x", "a")


def test_a_crawl_delay_ends_the_names_of_a_group() -> None:
    robots = parse(b"User-agent: *\nCrawl-delay: 10\n\nUser-agent: BadBot\nDisallow: /\n")
    assert allowed(robots, "/a")
    assert robots.crawl_delay(AGENT) == 10
    assert not allowed(robots, "/a", "BadBot")
    assert robots.crawl_delay("BadBot") is None


def test_wildcards_anchors_and_precedence() -> None:
    text = "User-agent: *\nDisallow: /*?sort=\nDisallow: /*.pdf$\nDisallow: /folder/\nAllow: /folder/page\n"
    assert not allowed(text, "/list?sort=price")
    assert not allowed(text, "/a/b.pdf")
    assert allowed(text, "/a/b.pdf?x")
    assert allowed(text, "/folder/page")
    assert not allowed(text, "/folder/other")
    assert allowed("User-agent: *\nDisallow: /p\nAllow: /p\n", "/p"), "of equally long rules the kinder one holds"


def test_percent_encoding_is_normalised() -> None:
    assert not allowed("User-agent: *\nDisallow: /ü\n", "/%C3%BC")
    assert not allowed("User-agent: *\nDisallow: /%7Ejoe\n", "/~joe/x")


def test_robots_txt_itself_is_always_allowed() -> None:
    assert allowed(ALLOW_ALL, "/anything")


@pytest.mark.parametrize(
    "line", ["disallow /x", "DISALLOW:/x", "Dissallow: /x", "Disalow : /x", "  disallow:\t/x # no"]
)
def test_careless_writing_is_understood(line: str) -> None:
    assert not allowed(f"useragent *\r{line}\r", "/x")


@pytest.mark.parametrize(
    ("value", "delay"),
    [("2.5", 2.5), ("0", None), ("-1", None), ("nan", None), ("inf", inf), ("1e309", inf), ("x", None)],
)
def test_crawl_delay(value: str, delay: float | None) -> None:
    assert parse(f"User-agent: *\nCrawl-delay: {value}\n".encode()).crawl_delay(AGENT) == delay


def test_sitemaps_are_listed_once_wherever_they_stand() -> None:
    robots = parse(
        b"Sitemap: https://a/1.xml\nUser-agent: x\nDisallow: /\nSITEMAP: /2.xml\nSitemap: https://a/1.xml\nSitemap:\n"
    )
    assert robots.sitemaps == ("https://a/1.xml", "/2.xml")
    assert robots.allowed("https://a/", AGENT)
    assert robots.sitemaps == ("https://a/1.xml", "/2.xml")


def test_a_byte_order_mark_and_broken_characters() -> None:
    assert not allowed(b"\xef\xbb\xbfUser-agent: *\nDisallow: /a\n", "/a")
    assert not allowed(b"User-agent: *\nDisallow: /\xff\xfe\nDisallow: /a\n", "/a")


def test_rules_beyond_the_size_limit_are_ignored() -> None:
    line = b"Disallow: /aaaaaaaaaaaaaaaaaaa\n"
    body = b"User-agent: *\n" + line * (MAX_BYTES // len(line) + 1) + b"Disallow: /zzz\n"
    robots = parse(body)
    assert MAX_BYTES - len(line) < len(robots.body) <= MAX_BYTES
    assert robots.body.endswith(line)
    assert allowed(robots, "/zzz")
    assert parse(b"x" * (MAX_BYTES + 1)).body == b""


def test_truncated_line_is_not_a_rule() -> None:
    assert not allowed(parse(b"User-agent: *\nDisallow: /private/\nDisallow: /", cut=True), "/private/")
    assert allowed(parse(b"User-agent: *\nDisallow: /private/\nDisallow: /", cut=True), "/public/")
    assert parse(b"User-agent: *", cut=True).body == b""


def test_large_robots_txt_is_parsed_in_time() -> None:
    names = b"".join(b"User-agent: bot%d\n" % i for i in range(12_000))
    robots = parse(names + b"User-agent: *\n" + b"".join(b"Disallow: /%d\n" % i for i in range(15_000)))
    assert not allowed(robots, "/77")


def test_dump_and_load() -> None:
    robots = parse(b"User-agent: *\nDisallow: /a\nCrawl-delay: 3\nSitemap: /s\n")
    again = load(dump(robots))
    assert not allowed(again, "/a")
    assert (again.crawl_delay(AGENT), again.sitemaps) == (3, ("/s",))


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *((status, "parse") for status in (200, 204)),
        *((status, "allow") for status in (301, 401, 403, 404, 410)),
        *((status, "retry") for status in (0, 429, 500, 503, 599)),
    ],
)
def test_what_an_answer_means(status: int, verdict: str) -> None:
    assert classify_status(status) == verdict


LINES = st.one_of(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["User-agent", "Disallow", "allow", "Crawl-delay", "Sitemap", "Request-rate", "x", "disallow"]),
        st.sampled_from([": ", ":", " ", ""]),
        st.one_of(st.sampled_from(["*", "uttu", "/", "/*$", "/%", "%zz", "$", "1e999", "\x00"]), st.text(max_size=20)),
    ),
    st.text(max_size=30),
)


@settings(deadline=None)
@given(
    st.one_of(st.binary(), st.lists(LINES).map(lambda lines: "\n".join(lines).encode("utf-8", "replace"))), st.text()
)
def test_no_file_raises(body: bytes, agent: str) -> None:
    robots = parse(body)
    for name in (AGENT, agent):
        assert robots.allowed(HOST + "/a/b?c=%20d", name) in (True, False)
        delay = robots.crawl_delay(name)
        assert delay is None or delay > 0
    assert all(robots.sitemaps)
    assert load(dump(robots)).sitemaps == robots.sitemaps


RULES = [
    "/",
    "/a",
    "/a/",
    "/a*",
    "/*a",
    "/a$",
    "/b c",
    "/%61",
    "/ä",
    "a",
    "*",
    "/a?b",
    "/~x",
    "//a",
    "/A",
    "/a#b",
    "?q",
]
PATHS = [
    "/",
    "/a",
    "/ab",
    "/a/b",
    "/b",
    "/%61",
    "/b%20c",
    "/%C3%A4",
    "/a?b=1",
    "/~x",
    "/%7Ex",
    "//a",
    "/A",
    "/x?q",
    "/?q",
]


@given(
    st.lists(st.tuples(st.sampled_from(["Allow", "Disallow"]), st.sampled_from(RULES)), max_size=4),
    st.sampled_from(PATHS),
)
@settings(max_examples=400)
def test_fast_path_gives_the_same_answers(rules: list[tuple[str, str]], path: str) -> None:
    text = "\n".join(["User-agent: *", *(f"{field}: {value}" for field, value in rules)])
    assert allowed(text, path) == Protego.parse(text).can_fetch(HOST + path, "*")
