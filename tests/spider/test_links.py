"""Strings given to follow: URL references, selectors, and what could be both."""

from __future__ import annotations

import itertools

import pytest

from uttu import Request
from uttu.testing.pages import page_of

SITE = "http://example.org/dir/index.html"
PAGE = """<h3><a href="one">1</a></h3><li class="next"><a class="next" href="?page=2">next</a></li>
<my-element href="custom">c</my-element><a id="empty">no link</a>"""


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("page-2.html", "http://example.org/dir/page-2.html"),
        ("Page-2.HTM", "http://example.org/dir/Page-2.HTM"),
        ("index.php", "http://example.org/dir/index.php"),
        ("article.html", "http://example.org/dir/article.html"),
        ("main.php", "http://example.org/dir/main.php"),
        ("feed.xml", "http://example.org/dir/feed.xml"),
        ("data.json", "http://example.org/dir/data.json"),
        ("map.xml", "http://example.org/dir/map.xml"),
        ("summary.pdf", "http://example.org/dir/summary.pdf"),
        ("image.png", "http://example.org/dir/image.png"),
        ("page 2.html", "http://example.org/dir/page%202.html"),
        ("my file.html", "http://example.org/dir/my%20file.html"),
        ("catalogue/page-2", "http://example.org/dir/catalogue/page-2"),
        ("catalogue/", "http://example.org/dir/catalogue/"),
        ("article.php?id=3", "http://example.org/dir/article.php?id=3"),
        ("page?id=3&x=[1]", "http://example.org/dir/page?id=3&x=[1]"),
        ("2", "http://example.org/dir/2"),
        ("2.html", "http://example.org/dir/2.html"),
        ("2024/07/", "http://example.org/dir/2024/07/"),
        ("%C3%A9", "http://example.org/dir/%C3%A9"),
        (" /x\n", "http://example.org/x"),
        (" page-2.html ", "http://example.org/dir/page-2.html"),
        ("página-2.html", "http://example.org/dir/p%C3%A1gina-2.html"),
        ("schuhe,rot.html", "http://example.org/dir/schuhe,rot.html"),
        ("~ann", "http://example.org/dir/~ann"),
        ("Talk/Talk:Uttu", "http://example.org/dir/Talk/Talk:Uttu"),
        ("/@channel", "http://example.org/@channel"),
        ("/wiki/C++::list", "http://example.org/wiki/C++::list"),
        ("/x?a[]=1&b[@c]=2", "http://example.org/x?a[]=1&b[@c]=2"),
        ("//myhost:8000/x", "http://myhost:8000/x"),
        ("/x?y", "http://example.org/x?y"),
        ("./x", "http://example.org/dir/x"),
        ("../x", "http://example.org/x"),
        ("..", "http://example.org/"),
        ("?page=3", "http://example.org/dir/index.html?page=3"),
        ("#", "http://example.org/dir/index.html"),
        ("//cdn.example.org/x", "http://cdn.example.org/x"),
        ("//localhost:8000/x", "http://localhost:8000/x"),
        ("https://other.example/a b", "https://other.example/a%20b"),
        ("HTTPS://other.example/", "https://other.example/"),
    ],
)
def test_url_references(target: str, url: str) -> None:
    assert page_of(PAGE, SITE).follow(target) == Request(url=url, depth=1)
    assert [request.url for request in page_of(PAGE, SITE).follow_all(target)] == [url]


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("a", "http://example.org/dir/one"),
        ("h3 a", "http://example.org/dir/one"),
        ("a.next", "http://example.org/dir/index.html?page=2"),
        ("li.next a", "http://example.org/dir/index.html?page=2"),
        ("li.next > a::attr(href)", "http://example.org/dir/index.html?page=2"),
        (".next a", "http://example.org/dir/index.html?page=2"),
        ("my-element", "http://example.org/dir/custom"),
    ],
)
def test_selectors(target: str, url: str) -> None:
    assert page_of(PAGE, SITE).follow(target) == Request(url=url, depth=1)
    assert page_of(PAGE, SITE).follow_all(target)[0].url == url


@pytest.mark.parametrize(
    "target",
    [
        "li.previous a",
        "a.previous",
        "h4 a",
        ".previous",
        "#previous",
        "#previous a",
        "a[rel=next]",
        "a:last-of-type.x",
        "nav",
        "my-card a",
        "my-card > a",
        "link[rel=next]::attr(href)",
        "article.post",
        "a.pdf",
        "li.action",
        "menu.item",
        "a#empty",
        "*.previous",
        "section.page a::attr(href)",
        "area",
    ],
)
def test_a_selector_that_finds_no_link_ends_a_pagination(target: str) -> None:
    assert page_of(PAGE, SITE).follow(target) is None
    assert len(page_of(PAGE, SITE).follow_all(target)) == 0


@pytest.mark.parametrize("target", ["next", "foo", "page-2", "my-other-element", "foo.bar", "page2", "Next", "_x"])
def test_ambiguous_targets_are_errors(target: str) -> None:
    page = page_of(PAGE, SITE)
    with pytest.raises(ValueError, match=r"could be a URL.*page\.follow\(url=.*page\.css\("):
        page.follow(target)
    with pytest.raises(ValueError, match="could be a URL"):
        page.follow_all(target)
    assert page.follow(url=target) == Request(url=f"http://example.org/dir/{target}", depth=1)
    assert page.follow(page.css(target)) is None


def test_names_in_other_languages_could_be_both() -> None:
    with pytest.raises(ValueError, match="could be a URL"):
        page_of(PAGE, SITE).follow("über")


@pytest.mark.parametrize(
    "target",
    [
        "//a/@href",
        "//li[@class='next']/a",
        "//a",
        ".//a",
        "//a[1]",
        "(//a)[1]",
        "/html/body/div[2]/a",
        "./a/@href",
        "//*[@id='x']",
        "//li/a/@href",
    ],
)
def test_xpath_is_an_error(target: str) -> None:
    with pytest.raises(ValueError, match=r"this is XPath.*page\.xpath"):
        page_of(PAGE, SITE).follow(target)


@pytest.mark.parametrize("target", ["li.next a[", "li > > a", "a:nth-child(", "div::before", ""])
def test_broken_selectors_are_errors(target: str) -> None:
    with pytest.raises(ValueError, match="selector"):
        page_of(PAGE, SITE).follow(target)


@pytest.mark.parametrize(
    "target", ["mailto:a@example.org", "javascript:void(0)", "ftp://example.org/", "http://[", "tel:1"]
)
def test_urls_without_web_page_are_errors(target: str) -> None:
    page = page_of(PAGE, SITE)
    with pytest.raises(ValueError, match="it is not a link to a web page"):
        page.follow(target)
    with pytest.raises(ValueError, match="it is not a link to a web page"):
        page.follow(url=target)


def test_none_gives_none() -> None:
    """So that ``page.follow(page.css("li.next a::attr(href)").get())`` ends a pagination."""
    page = page_of(PAGE, SITE)
    assert page.follow(None) is None
    assert page.follow(url=None) is None
    assert page.follow(url="") == Request(url=SITE, depth=1)
    assert page.follow(page.css("li.previous a::attr(href)").get()) is None
    assert page.follow(page.css("li.next a::attr(href)").get()) == Request(url=f"{SITE}?page=2", depth=1)


def test_selections() -> None:
    page = page_of(PAGE, SITE)
    for selection in (page.css("li a"), page.css("li a")[0], page.xpath("//li/a"), page.xpath("//li/a/@href")):
        assert page.follow(selection) == Request(url=f"{SITE}?page=2", depth=1)
    assert page.follow(page.css("nav a")) is None
    assert [each.url for each in page.follow_all([page.css("li a"), "x"])] == [
        f"{SITE}?page=2",
        "http://example.org/dir/x",
    ]
    assert [each.url for each in page.follow_all(page.xpath("//li/a | //h3/a/@href"))] == [
        "http://example.org/dir/one",
        f"{SITE}?page=2",
    ]


MEDIA = """<a name="top">no attributes of interest</a><a>none</a><a href="/1">1</a><iframe src="/2"></iframe>
<img src="/3.png" alt=""><link href="/4"><area href="/5"><frame><script src="/6.js"></script><form action="/7"></form>
<svg><a xlink:href="/8"></a></svg>"""


def test_each_element_gives_its_own_link() -> None:
    page = page_of(MEDIA, "http://example.org/")
    assert [each.url for each in page.follow_all(page.xpath("//a"))] == ["http://example.org/1", "http://example.org/8"]
    assert [each.url for each in page.follow_all(page.css("a"))] == ["http://example.org/1", "http://example.org/8"]
    assert page.links("a, iframe") == ["http://example.org/1", "http://example.org/2", "http://example.org/8"]
    everything = [f"http://example.org/{name}" for name in ("1", "2", "3.png", "4", "5", "6.js", "8")]
    assert [each.url for each in page.follow_all(page.css("*"))] == everything
    assert [each.url for each in page.follow_all(page.xpath("//*"))] == everything
    assert page.follow_all(page.xpath("//form")) == []


def test_hints_for_names_of_other_crawlers() -> None:
    page = page_of(PAGE, SITE)

    def product(page: object) -> None: ...

    with pytest.raises(TypeError, match=r"'callback'\. Use to="):
        page.follow("a", callback=product)
    with pytest.raises(TypeError, match=r"'callback'\. Use to="):
        page.follow_all("a", callback=product)
    with pytest.raises(TypeError, match="Use to=product"):
        page.follow("a", handler=product)
    with pytest.raises(TypeError, match="Use meta="):
        page.follow("a", cb_kwargs={})
    with pytest.raises(TypeError, match="Use handler= with the handler's name"):
        Request.to(SITE, callback=product)
    with pytest.raises(TypeError, match="Use handler='product'"):
        Request.to(SITE, handler=product)
    assert page.follow("a", handler="product") == page.follow("a", to=product)


def test_links_without_end() -> None:
    with pytest.raises(ValueError, match="at most 1,000,000 links"):
        page_of("<a>").follow_all(itertools.repeat("/x"))
