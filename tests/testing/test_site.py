"""The test site itself: its pages, shop, traps and files, and HTTP as it should be."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import ssl
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.response import Response
from selectolax.lexbor import LexborHTMLParser, LexborNode

from uttu.testing.site import Running, Site, serve
from uttu.testing.site.app import SiteApp
from uttu.testing.site.message import Answer, Incoming
from uttu.testing.site.model import Layout
from uttu.testing.site.pages import Pages, price, targets, title


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ClientBuilder().build() as client:
        yield client


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with serve(Site(pages=2500)) as running:
        yield running


async def get(client: Client, url: str) -> Response:
    return await client.get(url).build().send()


@cache
def app(site: Site) -> SiteApp:
    return SiteApp(Layout.at(site, 8000))


def page(site: Site, target: str, host: int = 0) -> Answer:
    """What the site answers, without HTTP."""
    reply = app(site).reply(Incoming(host, "GET", target, b""))
    assert isinstance(reply, Answer)
    return reply


def hrefs(body: bytes) -> list[str]:
    return [node.attributes["href"] or "" for node in LexborHTMLParser(body).css("a")]


def links(base: str, body: bytes) -> list[str]:
    return [urljoin(base, href) for href in hrefs(body)]


def text(node: LexborHTMLParser | LexborNode, css: str) -> str:
    found = node.css_first(css)
    assert found is not None
    return found.text(strip=True)


PATHS = ["/", "/p/0", "/p/77", "/shop/", "/shop/product/3", "/sitemap.xml", "/robots.txt", "/feed.rss", "/trap/session"]


@pytest.mark.parametrize("target", PATHS)
def test_same_seed_same_bytes(target: str) -> None:
    assert page(Site(seed=5), target) == page(Site(seed=5), target)


def test_another_seed_is_another_site() -> None:
    one, other = Site(seed=1), Site(seed=2)
    assert page(one, "/p/5") != page(other, "/p/5")
    assert page(one, "/shop/product/5") != page(other, "/shop/product/5")


def test_bytes_do_not_depend_on_the_python() -> None:
    assert targets(Site(), 3) == [
        49,
        50,
        51,
        52,
        53,
        54,
        55,
        56,
        57,
        58,
        59,
        60,
        61,
        62,
        63,
        64,
        702,
        191,
        106,
        107,
        146,
        661,
        230,
        106,
        402,
        598,
        303,
        738,
        718,
        870,
        280,
        783,
    ]
    assert price(Site(), 3) == "795.64"


@pytest.mark.parametrize("site", [Site(pages=2000), Site(pages=2000, hosts=7), Site(pages=300, links=1), Site(pages=3)])
def test_every_page_is_reachable_from_the_first(site: Site) -> None:
    layout = Layout.at(site, 8000)
    pages = Pages(layout)
    hosts = {urlsplit(origin).netloc: number for number, origin in enumerate(layout.origins)}
    seen = {layout.page_url(0)}
    todo = list(seen)
    while todo:
        url = todo.pop()
        split = urlsplit(url)
        body = pages.render(hosts[split.netloc], int(split.path.removeprefix("/p/")))
        assert body is not None, f"{url} is linked but is not there"
        found = hrefs(body)
        assert len(found) == site.links
        new = {layout.origins[0] + link if link[0] == "/" else link for link in found} - seen
        todo.extend(new)
        seen |= new
    assert seen == {layout.page_url(number) for number in range(site.pages)}


def test_a_page_shows_what_it_should() -> None:
    site = Site()
    tree = LexborHTMLParser(page(site, "/p/12").body)
    assert text(tree, "title") == text(tree, "h1") == title(12)
    assert text(tree, "span.price") == price(site, 12)
    assert [node.attributes["href"] for node in tree.css("a")] == [f"/p/{to}" for to in targets(site, 12)]


@pytest.mark.parametrize("size", [*range(5990, 6010), 4000, 40_000, 1_000_000])
def test_a_page_has_exactly_its_size(size: int) -> None:
    assert len(page(Site(page_bytes=size), "/p/1").body) == size


@pytest.mark.parametrize("target", ["/p/1000", "/p/01", "/p/-1", "/p/x", "/p/", "/p", "/p/" + "9" * 5000, "/nowhere"])
def test_missing_pages_are_404(target: str) -> None:
    assert page(Site(pages=1000), target).status == 404


def test_a_page_lives_on_one_host() -> None:
    site = Site(hosts=3)
    assert [page(site, "/p/4", host).status for host in range(3)] == [404, 200, 404]


@pytest.mark.parametrize(
    "wrong", [{"base": "10.0.0.1"}, {"hosts": 0}, {"links": 0}, {"base": "127.255.255.250", "hosts": 9}]
)
def test_invalid_site(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"at least|127"):
        Site(**wrong)  # type: ignore[arg-type]


async def test_index_links_to_all_pages(client: Client, running: Running) -> None:
    response = await get(client, running.url)
    found = links(running.url, bytes(await response.bytes()))
    for path in ("p/0", "shop/", "odd/", "trap/"):
        assert running.url + path in found
    for url in found:
        assert (await get(client, url)).status == 200


async def test_the_shop_can_be_scraped(client: Client, running: Running) -> None:
    """By its pages and by its API, with one result."""
    url: str | None = running.url + "shop/"
    seen: list[tuple[int, str, str]] = []
    while url:
        tree = LexborHTMLParser(await (await get(client, url)).text())
        for box in tree.css("article.product"):
            sku, cost = int(box.attributes["data-sku"] or 0), text(box, ".price").removeprefix("£")
            seen.append((sku, text(box, "h3 a"), cost))
        following = tree.css_first("li.next a")
        url = urljoin(url, following.attributes["href"] or "") if following else None
    told: list[tuple[int, str, str]] = []
    url = running.url + "shop/api/products?page=1"
    while url:
        answer = await (await get(client, url)).json()
        told += [(one["sku"], one["name"], one["price"]) for one in answer["products"]]
        url = answer["next"] and urljoin(url, answer["next"])
    assert seen == told
    assert [sku for sku, _, _ in seen] == list(range(1, 201))


async def test_a_product_page(client: Client, running: Running) -> None:
    response = await get(client, running.url + "shop/product/7")
    tree = LexborHTMLParser(await response.text())
    linked = json.loads(text(tree, "script"))
    assert linked["name"] == text(tree, "h1")
    assert "£" + linked["offers"]["price"] == text(tree, "p.price")
    assert linked["description"] == text(tree, ".description")
    category = tree.css(".breadcrumb a")[-1]
    listing = page(running.site, category.attributes["href"] or "")
    assert category.text() == linked["category"]
    assert b"/shop/product/7" in listing.body or b"next" in listing.body


@pytest.mark.parametrize(
    "target", ["/shop/page/11/", "/shop/page/0/", "/shop/product/0", "/shop/product/201", "/shop/x"]
)
def test_the_shop_has_an_end(target: str) -> None:
    assert page(Site(), target).status == 404


async def test_robots(client: Client) -> None:
    async with serve(Site(crawl_delay=2.5)) as running:
        text = await (await get(client, running.url + "robots.txt")).text()
        assert text == f"User-agent: *\nDisallow: /private/\nCrawl-delay: 2.5\n\nSitemap: {running.url}sitemap.xml\n"
        assert (await get(client, running.url + "private/x")).status == 200
        assert running.log[-1].path == "/private/x"


def test_custom_robots_txt() -> None:
    huge = "User-agent: *\n" + "Disallow: /x\n" * 100_000
    assert page(Site(robots=huge), "/robots.txt").body == huge.encode()
    assert page(Site(robots=503), "/robots.txt").status == 503
    moved = page(Site(robots=301), "/robots.txt")
    assert (moved.status, dict(moved.headers)["Location"]) == (301, "/odd/robots.txt")
    assert b"Disallow: /private/" in page(Site(), "/odd/robots.txt").body
    moved = page(Site(robots="/elsewhere"), "/robots.txt")
    assert (moved.status, dict(moved.headers)["Location"]) == (302, "/elsewhere")


def test_robots_that_change() -> None:
    app = SiteApp(Layout.at(Site(hosts=2, robots=(503, "# mine", None)), 8000))
    asked = [app.reply(Incoming(host, "GET", "/robots.txt", b"")) for host in (0, 1, 0, 0, 0, 1)]
    answers = [answer for answer in asked if isinstance(answer, Answer)]
    assert [answer.status for answer in answers] == [503, 503, 200, 200, 200, 200]
    assert [answer.body == b"# mine" for answer in answers[2:]] == [True, False, False, True]
    with pytest.raises(ValueError, match="one answer at least"):
        Site(robots=())


def test_sitemaps_name_every_page_of_a_host() -> None:
    site = Site(pages=5000, hosts=2)
    own = [f"http://127.77.0.2:8000/p/{number}" for number in range(1, 5000, 2)]

    def locations(body: bytes) -> list[str]:
        return [node.text or "" for node in ET.fromstring(body).iter() if node.tag.endswith("}loc")]

    *files, shop = (urlsplit(url).path for url in locations(page(site, "/sitemap.xml", 1).body))
    assert [url for file in files for url in locations(page(site, file, 1).body)] == own
    assert page(site, "/sitemap-pages-3.xml", 1).status == 404
    assert page(site, "/sitemap.txt", 1).body.decode().split() == own
    assert len(locations(gzip.decompress(page(site, shop, 1).body))) == 200


@pytest.mark.parametrize(("target", "link"), [("/feed.rss", "item/link"), ("/feed.atom", "{*}entry/{*}id")])
def test_feeds(target: str, link: str) -> None:
    root = ET.fromstring(page(Site(), target).body)
    found = [node.text for node in root.iterfind(f".//{link}")]
    assert found == [f"http://127.77.0.1:8000/shop/product/{sku}" for sku in range(1, 21)]


@pytest.mark.parametrize(
    "start", ["/trap/calendar/2024/12/", "/trap/deep/a/b/", "/trap/session?sid=1", "/trap/long?x=x"]
)
def test_traps_have_no_end(start: str) -> None:
    """A hundred steps down, each page still has a link that was never seen."""
    base, seen = "http://127.77.0.1:8000", {start}
    at = start
    for _ in range(100):
        answer = page(Site(), at)
        assert answer.status == 200
        fresh = [
            link.removeprefix(base) for link in links(base + at, answer.body) if link.removeprefix(base) not in seen
        ]
        at = fresh[-1]
        seen.add(at)


async def test_pipelined_requests_are_answered_in_order(running: Running) -> None:
    paths = ["/p/1", "/odd/slow?seconds=0.05", "/p/2", "/odd/huge?bytes=300000", "/odd/chunked", "/p/3"]
    sent = "".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths)
    reader, writer = await asyncio.open_connection("127.77.0.1", running.port)
    # In two pieces that split a head.
    writer.write(sent[:100].encode())
    await writer.drain()
    writer.write(sent[100:].encode() + b"GET /p/4 HTTP/1.1\r\nConnection: close\r\n\r\n")
    answer = (await reader.read()).decode("latin-1")
    writer.close()
    await writer.wait_closed()
    heads = re.findall(r"HTTP/1.1 200 OK.*?\r\n\r\n", answer, re.DOTALL)
    assert len(heads) == 7
    assert [record.path for record in running.log] == [*paths, "/p/4"]
    assert all(record.ended and record.status == 200 for record in running.log)
    titles = re.findall("<title>(.*?)</title>", answer)
    assert titles == [title(1), "Slow", title(2), title(3), title(4)]  # chunks cut the other one
    assert "\r\n0\r\n\r\nHTTP/1.1 200 OK" in answer


async def test_head_has_the_length_and_no_body(running: Running) -> None:
    reader, writer = await asyncio.open_connection("127.77.0.1", running.port)
    for path in ("/p/1", "/odd/huge?bytes=300000", "/odd/chunked", "/odd/drip?seconds=0.01"):
        writer.write(f"HEAD {path} HTTP/1.1\r\n\r\n".encode())
    writer.write(b"HEAD /p/2 HTTP/1.1\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    heads = answer.split(b"\r\n\r\n")
    assert [head[:15] for head in heads] == [b"HTTP/1.1 200 OK"] * 5 + [b""]
    assert b"Content-Length: 6000" in heads[0]
    assert b"Content-Length: 300000" in heads[1]
    assert b"Transfer-Encoding: chunked" in heads[2]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /p/1 HTTP/2.0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n", 413),
        (b"GET /p/1 HTTP/1.1\r\nX: " + b"x" * 300_000, 431),
        (b"GET /p/1 HTTP/1.0\r\n\r\n", 200),
        (b"GET http://127.77.0.1/p/1 HTTP/1.1\r\nConnection: close\r\n\r\n", 200),
        (b"POST /odd/form HTTP/1.1\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\na=1", 100),
    ],
)
async def test_other_requests(running: Running, sent: bytes, status: int) -> None:
    reader, writer = await asyncio.open_connection("127.77.0.1", running.port)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 %d " % status)


async def test_latency(client: Client) -> None:
    async with serve(Site(latency=0.1)) as running:
        await get(client, running.url + "p/0")
        record = running.log[0]
        assert record.ended
        assert 0.1 <= record.ended - record.time < 1


async def test_hosts_share_a_port(client: Client) -> None:
    async with serve(Site(hosts=20)) as running:
        assert [urlsplit(url).hostname for url in running.urls] == [f"127.77.0.{number}" for number in range(1, 21)]
        assert {urlsplit(url).port for url in running.urls} == {running.port}
        for url in running.urls:
            assert (await get(client, url)).status == 200
        assert [record.host for record in running.log] == list(running.site.addresses)
        with pytest.raises(OSError, match="in use"):
            async with serve(Site(port=running.port)):
                pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.77.0.1", running.port))


async def test_https(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test site")])
    today = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.77.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (tmp_path / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    async with serve(Site(certificate=str(tmp_path / "cert.pem"), key=str(tmp_path / "key.pem"))) as running:
        context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        reader, writer = await asyncio.open_connection("127.77.0.1", running.port, ssl=context)
        writer.write(b"GET /p/1 HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
        writer.close()
        await writer.wait_closed()
        assert running.url.startswith("https://")
