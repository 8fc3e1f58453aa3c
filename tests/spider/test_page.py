from __future__ import annotations

import pytest

from weft import Request
from weft.testing.pages import page_of

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


def test_links_by_rules() -> None:
    page = page_of(LINKS, "http://www.example.org/")
    assert page.links(same_site=True, deny="/map|/c") == [
        "http://www.example.org/a",
        "http://www.example.org/b?x=1",
        "https://sub.example.org/e",
    ]
    assert page.links(allow=[r"\.pdf$", "/a"]) == ["http://www.example.org/a", "http://www.example.org/file.pdf"]
    assert page.links("img", allow=r"\.png") == ["http://www.example.org/i.png"]


def test_a_page_is_what_is_written() -> None:
    """Browsers copy the chosen option into such an element; its text would be found twice."""
    page = page_of("<select><button><selectedcontent></selectedcontent></button><option>blue</option></select>")
    assert page.css("select ::text").getall() == ["blue"]


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


def test_fields_that_requests_do_not_have_are_refused_at_once() -> None:
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


def test_json() -> None:
    assert page_of('{"a": [1, 2]}', content_type="application/json").json() == {"a": [1, 2]}
    with pytest.raises(ValueError, match="is not JSON"):
        page_of("<html>").json()


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


def test_what_is_no_json_in_any_charset() -> None:
    for body in (b"", b"\xef\xbb\xbf", b"\xff\xfe{\0", b'{"a": \xff}'):
        with pytest.raises(ValueError, match="is not JSON"):
            page_of(body, content_type="application/json").json()


def test_charsets_reach_the_selectors() -> None:
    page = page_of("<h1>Žluťoučký</h1>".encode("windows-1250"), content_type="text/html; charset=windows-1250")
    assert page.css("h1::text").get() == "Žluťoučký"
    assert page.encoding.lower().replace("-", "").replace("_", "") in ("windows1250", "cp1250")


def test_what_a_page_knows() -> None:
    page = page_of("x", "http://example.org/", status=203, headers={"X-Y": "z"}, meta={"k": "v"}, depth=4)
    assert (page.status, page.headers["x-y"], page.meta, page.depth, page.text) == (203, "z", {"k": "v"}, 4, "x")
    assert repr(page) == "<Page 203 http://example.org/>"


def test_sitemaps() -> None:
    page = page_of("<urlset><url><loc>http://example.org/1</loc></url></urlset>", content_type="application/xml")
    assert [entry.url for entry in page.sitemap().pages] == ["http://example.org/1"]
