from __future__ import annotations

import contextlib
import gc
import json
import logging
import weakref

import pytest

from uttu import Request
from uttu.testing.pages import page_of

LINKS = """
<a href="/a">a</a> <a href="b?x=1#frag">b</a> <a href="/a">again</a> <a href="mailto:x@example.org">mail</a>
<a>no link</a> <a href=" /c ">spaces</a> <a href="https://other.example/d">other</a> <a href="/file.pdf">pdf</a>
<a href="https://sub.example.org/e">sub</a> <area href="/map"> <img src="/i.png">
"""


def test_links_are_absolute_once_each_and_lead_to_pages() -> None:
    assert page_of(LINKS, "http://example.org/dir/x").links() == [
        "http://example.org/a",
        "http://example.org/dir/b?x=1",
        "http://example.org/c",
        "https://other.example/d",
        "https://sub.example.org/e",
        "http://example.org/map",
    ]


def test_extensions_count_in_the_path_only() -> None:
    page = page_of(
        "<a href='/search?q=node.js'>1</a><a href='/x?file=a.zip'>2</a><a href='/a.pdf?download=1'>3</a>"
        "<a href='/b.ZIP'>4</a><a href='/js'>5</a><a href='/v1.5/?next=/x.png'>6</a><a href='//files.zip/'>7</a>",
        "http://example.org/",
    )
    assert page.links() == [
        "http://example.org/search?q=node.js",
        "http://example.org/x?file=a.zip",
        "http://example.org/js",
        "http://example.org/v1.5/?next=/x.png",
        "http://files.zip/",
    ]


def test_links_by_rules() -> None:
    page = page_of(LINKS, "http://www.example.org/")
    assert page.links(same_site=True, deny="/map|/c") == [
        "http://www.example.org/a",
        "http://www.example.org/b?x=1",
        "https://sub.example.org/e",
    ]
    assert page.links(allow=[r"\.pdf$", "/a"]) == ["http://www.example.org/a", "http://www.example.org/file.pdf"]
    assert page.links("img", allow=r"\.png") == ["http://www.example.org/i.png"]


def test_selectedcontent_stays_empty() -> None:
    """Browsers copy the chosen option into such an element; its text would be found twice."""
    page = page_of("<select><button><selectedcontent></selectedcontent></button><option>blue</option></select>")
    assert page.css("select ::text").getall() == ["blue"]


@pytest.mark.parametrize(
    ("html", "folder"),
    [
        ("<head><base href=/b/></head>", "/b/"),
        ("<BASE HREF=/b/>", "/b/"),
        ("<div>stray</div><base href=/b/>", "/b/"),
        ("<head><noscript><img src=x></noscript><base href=/b/></head>", "/b/"),
        ("<body><p><span><base href=/b/></span>", "/b/"),
        ("<table><base href=/b/><tr><td>x</table>", "/b/"),
        ("<base target=_top><base href=/b/><base href=/c/>", "/b/"),
        ("<base href>", "/dir/"),
        ("<base href=''><base href=/c/>", "/dir/"),
        ("<base href='data:text/plain,x'>", "/dir/"),
        ("<base href='javascript:x'><base href=/c/>", "/dir/"),
        ("<base href='http://[bad'>", "/dir/"),
        ("<svg><base href=/s/></base></svg><base href=/b/>", "/b/"),
        ("<template><base href=/t/></template><base href=/b/>", "/b/"),
        ("<head><noscript><base href=/n/></noscript></head>", "/dir/"),
        ("<head><NOSCRIPT>\n<base href=/n/></noscript><base href=/b/></head>", "/b/"),
        ("<head><noscript><base href=/n/>", "/dir/"),
        ("<head><noscript></noscript><base href=/b/></head>", "/b/"),
        ("<body><noscript><p><base href=/n/></noscript><base href=/b/>", "/b/"),
        ("<!-- <base href=/c/> --><script>'<base href=/c/>'</script>", "/dir/"),
        ("<textarea><base href=/c/></textarea>", "/dir/"),
    ],
)
def test_first_base_with_href_counts(html: str, folder: str) -> None:
    page = page_of(html + "<a href=x>x</a>", "http://example.org/dir/page")
    assert page.links() == [f"http://example.org{folder}x"]


@pytest.mark.parametrize(
    ("encoding", "url"),
    [
        ("utf-8", "/п%26?q=%D0%BF&%C3%A9=%E2%82%AC"),
        ("windows-1251", "/п%26?q=%EF&%26%23233%3B=%88"),
        ("koi8-r", "/п%26?q=%D0&%26%23233%3B=%26%238364%3B"),
        ("utf-16", "/п%26?q=%D0%BF&%C3%A9=%E2%82%AC"),
        ("gb18030", "/п%26?q=%A7%E1&%A8%A6=%A2%E3"),
    ],
)
def test_queries_of_links_are_in_the_encoding_of_the_page(encoding: str, url: str) -> None:
    wanted = "http://example.org" + url.replace("п%26", "%D0%BF%26", 1)
    html = "<a href='/п%26?q=п&amp;é=€#é'>x</a><a href='//example.org/п%26?q=п&amp;é=€'>same</a>"
    body = html.encode(encoding, "xmlcharrefreplace")
    page = page_of(body, content_type=f"text/html; charset={encoding}")
    assert page.encoding == encoding.replace("utf-16", "utf-16le")
    assert page.links() == [wanted]
    assert [request.url for request in page.follow_all("a")] == [wanted]
    assert page.urljoin("?п=#п") == page.urljoin("/?п=")
    # The engine remembers links of a host by their text, so it must not depend on the page.
    if not encoding.startswith("utf"):
        assert all("п" not in text.partition("?")[2] for text in page.follow_all("a").texts)  # type: ignore[attr-defined]


def test_the_base_element_counts() -> None:
    page = page_of('<base href="/shop/"><a href="x">x</a>', "http://example.org/other/page")
    assert page.links() == ["http://example.org/shop/x"]


def test_follow() -> None:
    page = page_of(LINKS, "http://example.org/", depth=2)
    assert page.follow("a") == Request(url="http://example.org/a", depth=3)
    assert page.follow("/x?y") == Request(url="http://example.org/x?y", depth=3)
    assert page.follow("https://other.example/") == Request(url="https://other.example/", depth=3)
    assert page.follow(url="page2.html") == Request(url="http://example.org/page2.html", depth=3)
    assert page.follow("nav a") is None
    assert page.follow(page.css("img")) == Request(url="http://example.org/i.png", depth=3)
    assert page.follow(page.css("a::attr(href)")) == Request(url="http://example.org/a", depth=3)
    assert page.follow(page.xpath("//area")) == Request(url="http://example.org/map", depth=3)


def test_follow_to_a_handler_with_fields() -> None:
    def product(page: object) -> None:
        pass

    page = page_of(LINKS, "http://example.org/")
    assert page.follow("a", to=product, meta={"n": 1}, priority=5) == Request(
        url="http://example.org/a", handler="product", depth=1, meta={"n": 1}, priority=5
    )
    assert {request.handler for request in page.follow_all("a", to="product")} == {"product"}


def test_unknown_request_fields_are_refused() -> None:
    page = page_of(LINKS, "http://example.org/")
    with pytest.raises(TypeError, match="colour"):
        page.follow_all("a", colour="red")
    with pytest.raises(TypeError, match="colour"):
        page.follow("a", colour="red")


def test_follow_all_of_urls() -> None:
    page = page_of(LINKS, "http://example.org/")
    assert [request.url for request in page.follow_all(page.links(same_site=True, allow="/[ac]$"))] == [
        "http://example.org/a",
        "http://example.org/c",
    ]


def test_follow_all_skips_what_was_not_found() -> None:
    page = page_of(LINKS, "http://example.org/")
    links = ["/a", page.css("nothing::attr(href)").get(), page.css("nothing"), "/c"]
    assert [request.url for request in page.follow_all(links)] == ["http://example.org/a", "http://example.org/c"]


def test_json() -> None:
    assert page_of('{"a": [1, 2]}', content_type="application/json").json() == {"a": [1, 2]}
    with pytest.raises(ValueError, match="is not JSON"):
        page_of("<html>").json()


def test_json_error_leaves_no_reference_cycle() -> None:
    page = page_of("<html>", content_type="application/json")
    alive = weakref.ref(page)
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            page.json()
        del page
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("piece", ["{}", "[]", '{"a":0}', "[{}]"])
def test_json_has_a_bounded_number_of_objects_and_arrays(piece: str) -> None:
    page = page_of(f"[{','.join([piece] * 1_500_000)}]", content_type="application/json")
    with pytest.raises(ValueError, match="more than 1,500,000 objects and arrays"):
        page.json()


@pytest.mark.parametrize(
    ("body", "charset"),
    [
        ('{"a": "é"}'.encode("utf-8-sig"), ""),
        ('{"a": "é"}'.encode("utf-16"), ""),
        ('{"a": "é"}'.encode("utf-16-be"), "; charset=utf-16be"),
        ('{"a": "é"}'.encode("latin-1"), "; charset=iso-8859-1"),
        ('{"a": "é"}'.encode(), "; charset=iso-8859-1"),
    ],
)
def test_json_that_is_not_plain_utf_8(body: bytes, charset: str) -> None:
    assert page_of(body, content_type=f"application/json{charset}").json() == {"a": "é"}


def test_invalid_json_in_any_charset() -> None:
    for body in (b"", b"\xef\xbb\xbf", b"\xff\xfe{\0", b'{"a": \xff}'):
        with pytest.raises(ValueError, match="is not JSON"):
            page_of(body, content_type="application/json").json()


@pytest.mark.parametrize(
    "text",
    [
        "18446744073709551616",
        "-9223372036854775809",
        "123456789012345678901234567890",
        '{"id": [99999999999999999999999]}',
        "1" * 400,
        "1e400",
        "-1e400",
    ],
)
def test_json_numbers_of_any_size(text: str) -> None:
    assert page_of(text, content_type="application/json").json() == json.loads(text)
    assert page_of(text.encode("utf-16"), content_type="application/json").json() == json.loads(text)


def test_half_of_a_surrogate_pair_in_json() -> None:
    page = page_of(r'["\ud83d\ude00", "cut \uD83D", "\ude00\ud83dx", "\\ud83d", 18446744073709551616]')
    assert page.json() == ["\U0001f600", "cut \ufffd", "\ufffd\ufffdx", "\\ud83d", 2**64]


def test_json_lookalikes() -> None:
    for body in ("[1e400", "NaN", "[1e400, Infinity]", "{1e400: 1}", "[" * 100_000 + "1e400", "1" * 100_000):
        with pytest.raises(ValueError, match="is not JSON"):
            page_of(body, content_type="application/json").json()


def test_charsets_reach_the_selectors() -> None:
    page = page_of("<h1>Žluťoučký</h1>".encode("windows-1250"), content_type="text/html; charset=windows-1250")
    assert page.css("h1::text").get() == "Žluťoučký"
    assert page.encoding.lower().replace("-", "").replace("_", "") in ("windows1250", "cp1250")


def test_page_properties() -> None:
    page = page_of("x", "http://example.org/", status=203, headers={"X-Y": "z"}, meta={"k": "v"}, depth=4)
    assert (page.status, page.headers["x-y"], page.meta, page.depth, page.text) == (203, "z", {"k": "v"}, 4, "x")
    assert repr(page) == "<Page 203 http://example.org/>"


def test_sitemaps() -> None:
    page = page_of("<urlset><url><loc>http://example.org/1</loc></url></urlset>", content_type="application/xml")
    assert [entry.url for entry in page.sitemap().pages] == ["http://example.org/1"]


def test_log_names_the_page(caplog: pytest.LogCaptureFixture) -> None:
    page = page_of("x", "http://example.org/a%20b")
    with caplog.at_level(logging.INFO, "uttu.spider"):
        page.log.debug("not shown")
        page.log.info("100 %")
        page.log.warning("costs %d", 3)
        page.log.info("costs %(price)d", {"price": 3}, extra={"n": 1})
    assert [each.getMessage() for each in caplog.records] == [
        "http://example.org/a%20b: 100 %",
        "http://example.org/a%20b: costs 3",
        "http://example.org/a%20b: costs 3",
    ]
    last = caplog.records[-1]
    assert (last.name, vars(last)["url"], vars(last)["n"]) == ("uttu.spider", "http://example.org/a%20b", 1)
