"""Each oddity does what its line in the table says, seen from a socket or from a real client."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
import zlib
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from importlib import import_module
from urllib.parse import urlsplit

import pytest
import zstandard
from pyreqwest.client import Client, ClientBuilder
from selectolax.lexbor import LexborHTMLParser

from uttu.testing.site import Running, Site, odd, serve
from uttu.testing.site.message import Incoming
from uttu.testing.site.model import Layout
from uttu.testing.site.odd.charsets import CHARSETS
from uttu.testing.site.odd.encodings import ENCODINGS, PAGE, gzip_bomb


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with serve(Site(hosts=2)) as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ClientBuilder().follow_redirects(False).build() as client:
        yield client


class Answer:
    """An answer as it came over the wire, the connection read to its end."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        self.status = int(line.split(" ")[1])
        self.headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}


async def wire(running: Running, target: str, headers: str = "", host: int = 0) -> bytes:
    reader, writer = await asyncio.open_connection(running.site.addresses[host], running.port)
    try:
        writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n".encode())
        return await reader.read()
    finally:
        writer.transport.abort()


async def ask(running: Running, target: str, headers: str = "", host: int = 0) -> Answer:
    return Answer(await wire(running, target, headers, host))


def test_the_table_and_the_index_agree() -> None:
    """Every kind of oddity in the docstring is linked from /odd/, and the other way round."""
    answer = odd.Oddities(Layout.at(Site(), 8000)).reply(Incoming(0, "GET", "/odd/", b""))
    linked = {link.split("/")[2].partition("?")[0] for link in re.findall('href="(/odd/[^"]*)"', str(answer))}
    told = set(re.findall(r"``/odd/([^/?`]+)", odd.__doc__ or ""))
    assert told - linked == {"robots.txt"}
    assert linked <= told


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("3", "/odd/redirect/2"),
        ("loop", "/odd/redirect/loop/back"),
        ("loop/back", "/odd/redirect/loop"),
        ("self?a=1", "/odd/redirect/self?a=1"),
        ("endless?n=7", "/odd/redirect/endless?n=8"),
        ("relative", "../redirect/0"),
        ("bad", "http://[no-address:port/"),
        ("to?url=/x%0D%0AX:y", "/xX:y"),
        ("unicode", "/odd/redirect/0?grüße".encode().decode("latin-1")),
        ("none", None),
    ],
)
async def test_redirects(running: Running, path: str, location: str | None) -> None:
    answer = await ask(running, f"/odd/redirect/{path}")
    assert (answer.status, answer.headers.get("location")) == (302, location)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_of_every_status(running: Running, status: int) -> None:
    answer = await ask(running, f"/odd/redirect/status/{status}")
    assert (answer.status, answer.headers["location"]) == (status, "/odd/echo")


async def test_redirect_chain_ends(running: Running) -> None:
    async with ClientBuilder().build() as client:
        assert (await client.get(running.url + "odd/redirect/5").build().send()).status == 200
    assert [record.path for record in running.log] == [f"/odd/redirect/{step}" for step in (5, 4, 3, 2, 1, 0)]


async def test_a_redirect_leads_to_the_next_host(running: Running) -> None:
    there = await ask(running, "/odd/redirect/host")
    back = await ask(running, "/odd/redirect/host", host=1)
    assert there.headers["location"] == running.urls[1] + "odd/redirect/0"
    assert back.headers["location"] == running.urls[0] + "odd/redirect/0"


async def test_a_redirect_that_wants_its_cookie_back(running: Running) -> None:
    first = await ask(running, "/odd/redirect/cookie")
    assert (first.status, first.headers["location"]) == (302, "/odd/redirect/cookie")
    cookie = first.headers["set-cookie"].partition(";")[0]
    assert (await ask(running, "/odd/redirect/cookie", f"Cookie: a=b; {cookie}\r\n")).status == 200


@pytest.mark.parametrize("status", [200, 204, 304, 404, 410, 418, 500, 503, 599, 999])
async def test_statuses(running: Running, status: int) -> None:
    answer = await ask(running, f"/odd/status/{status}")
    assert answer.status == status == running.log[-1].status
    assert bool(answer.body) == (status not in (204, 304))


async def test_interim_statuses(running: Running, client: Client) -> None:
    assert (await wire(running, "/odd/status/103")).startswith(b"HTTP/1.1 103 ")
    assert (await client.get(running.url + "odd/status/103").build().send()).status == 200


async def test_flaky(running: Running) -> None:
    target = "/odd/flaky/a?fails=2&status=502"
    assert [(await ask(running, target)).status for _ in range(4)] == [502, 502, 200, 200]
    assert (await ask(running, target, host=1)).status == 502
    assert (await ask(running, "/odd/flaky/b")).status == 503


async def test_too_many_requests(running: Running) -> None:
    answers = [await ask(running, "/odd/429/a?times=2&after=3") for _ in range(3)]
    assert [answer.status for answer in answers] == [429, 429, 200]
    assert [answer.headers.get("retry-after") for answer in answers] == ["3", "3", None]
    dated = await ask(running, "/odd/429/b?after=3&date=1")
    assert 2.9 <= parsedate_to_datetime(dated.headers["retry-after"]).timestamp() - time.time() <= 4


async def test_slow(running: Running) -> None:
    assert (await ask(running, "/odd/slow?seconds=0.1")).status == 200
    record = running.log[-1]
    assert record.ended
    assert record.ended - record.time >= 0.1


async def test_drip(running: Running) -> None:
    answer = await ask(running, "/odd/drip?seconds=0.1&bytes=5")
    assert answer.body == b"....."
    record = running.log[-1]
    assert record.ended
    assert record.ended - record.time >= 0.1


@pytest.mark.parametrize("path", ["hang", "stall"])
async def test_silence_lasts_until_the_client_leaves(running: Running, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.77.0.1", running.port)
    writer.write(f"GET /odd/{path} HTTP/1.1\r\n\r\n".encode())
    if path == "stall":
        assert b"Content-Length: 57" in await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(28)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await reader.readexactly(1)
    record = running.log[-1]
    assert (record.ended, record.lost) == (None, None)
    writer.close()
    await writer.wait_closed()
    async with asyncio.timeout(5):
        await running.until(lambda log: log[-1].lost is not None)
    assert record.ended is None


async def test_reset(running: Running) -> None:
    reader, writer = await asyncio.open_connection("127.77.0.1", running.port)
    writer.write(b"GET /odd/reset HTTP/1.1\r\n\r\n")
    assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    assert running.log[-1].ended is None
    writer.transport.abort()


async def test_bodies_that_are_too_short(running: Running) -> None:
    answer = await ask(running, "/odd/truncated")
    assert len(answer.body) < int(answer.headers["content-length"])
    answer = await ask(running, "/odd/truncated?chunked=1")
    assert answer.headers["transfer-encoding"] == "chunked"
    assert not answer.body.endswith(b"0\r\n\r\n")
    assert await wire(running, "/odd/close") == b""
    assert [record.ended for record in running.log] == [None] * 3


async def test_garbage(running: Running) -> None:
    assert not (await wire(running, "/odd/garbage")).startswith(b"HTTP")
    assert running.log[-1].status == 0


@pytest.mark.parametrize("path", ["reset", "truncated", "truncated?chunked=1", "garbage", "close"])
async def test_broken_for_a_real_client(running: Running, client: Client, path: str) -> None:
    with pytest.raises(Exception, match=r"(?i)error|reset|connection|body|incomplete|invalid"):
        await (await client.get(running.url + "odd/" + path).build().send()).bytes()
    assert (await client.get(running.url + "p/0").build().send()).status == 200


async def test_huge(running: Running, client: Client) -> None:
    response = await client.get(running.url + "odd/huge?bytes=20000001").build().send()
    assert len(await response.bytes()) == 20_000_001


async def test_endless_goes_on_and_waits_for_its_reader(running: Running) -> None:
    reader, writer = await asyncio.open_connection("127.77.0.1", running.port)
    writer.write(b"GET /odd/endless HTTP/1.1\r\n\r\n")
    await reader.readexactly(5_000_000)
    writer.transport.abort()
    async with asyncio.timeout(5):
        await running.until(lambda log: log[-1].lost is not None)


async def test_large_head(running: Running) -> None:
    data = await wire(running, "/odd/headers?bytes=50000")
    assert 50_000 <= data.index(b"\r\n\r\n") < 52_000


async def test_chunked(running: Running, client: Client) -> None:
    response = await client.get(running.url + "odd/chunked").build().send()
    assert response.headers["transfer-encoding"] == "chunked"
    assert (await response.text()).endswith("</body></html>\n")


async def test_encodings(running: Running) -> None:
    unpack = {
        "gzip": gzip.decompress,
        "x-gzip": gzip.decompress,
        "deflate": zlib.decompress,
        "raw-deflate": lambda body: zlib.decompress(body, -zlib.MAX_WBITS),
        "br": import_module("brotli").decompress,  # it has no types
        "zstd": lambda body: zstandard.ZstdDecompressor().decompress(body),
        "twice": lambda body: zlib.decompress(gzip.decompress(body)),
        "wrong": bytes,
        "unknown": bytes,
    }
    for name, how in unpack.items():
        answer = await ask(running, f"/odd/encoding/{name}")
        assert how(answer.body) == PAGE, name
        assert answer.headers["content-encoding"]
    assert {*unpack, "cut"} == set(ENCODINGS)
    with pytest.raises(EOFError):
        gzip.decompress((await ask(running, "/odd/encoding/cut")).body)


async def test_bomb(running: Running) -> None:
    answer = await ask(running, "/odd/bomb?mb=8")
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.body) < 10_000
    assert gzip.decompress(answer.body) == bytes(8 * 1024 * 1024)
    assert len(gzip_bomb(1024)) < 1_200_000


@pytest.mark.parametrize("name", CHARSETS)
async def test_charsets(running: Running, name: str) -> None:
    """The promised text is what comes of reading the page by the standard's order: mark, header, meta."""
    answer = await ask(running, f"/odd/charset/{name}")
    encodings = {
        "latin-1": "cp1252",
        "windows-1251": "cp1251",
        "shift_jis": "shift_jis",
        "utf-16": "utf-16",
        "bom": "utf-8-sig",
        "wrong": "cp1252",
        "invalid": "utf-8",
        "unknown": "utf-8",
    }
    heading = LexborHTMLParser(answer.body.decode(encodings[name], "replace")).css_first("h1")
    assert heading is not None
    assert heading.text() == CHARSETS[name].text


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("json", "application/json"),
        ("pdf", "application/pdf"),
        ("xml", "application/xml; charset=utf-8"),
        ("none", None),
    ],
)
async def test_types(running: Running, name: str, content_type: str | None) -> None:
    answer = await ask(running, f"/odd/type/{name}")
    assert answer.headers.get("content-type") == content_type
    assert answer.body


async def test_empty(running: Running) -> None:
    answer = await ask(running, "/odd/type/empty")
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")


async def test_echo_and_form(running: Running, client: Client) -> None:
    response = (
        await client.put(running.url + "odd/echo?a=1").header("X-A", "ä").body_text("hello " * 50_000).build().send()
    )
    told = await response.json()
    assert (told["method"], told["target"], told["body"]) == ("PUT", "/odd/echo?a=1", "hello " * 50_000)
    assert "x-a" in [name.lower() for name, _ in told["headers"]]
    posted = await client.post(running.url + "odd/form").form([("name", "Ada"), ("x", "1"), ("x", "2")]).build().send()
    assert await posted.json() == {"name": ["Ada"], "x": ["1", "2"]}
    assert "<form" in await (await client.get(running.url + "odd/form").build().send()).text()


async def test_cookies(running: Running) -> None:
    async with ClientBuilder().default_cookie_store(True).build() as client:
        root = running.url + "odd/cookies"
        await client.get(root + "/set?a=1&b=two").build().send()
        assert await (await client.get(root).build().send()).json() == {"a": "1", "b": "two"}
        await client.get(root + "/delete?a").build().send()
        assert await (await client.get(root).build().send()).json() == {"b": "two"}
    assert json.loads((await ask(running, "/odd/cookies")).body) == {}
    assert urlsplit(root).port == running.port
