from __future__ import annotations

import asyncio
import gzip
import time
import zlib

import brotli
import pytest
import zstandard

from tests.fetch.conftest import MakeFetcher, Serve
from tests.fetch.servers import chunked, reply, response
from uttu.errors import BadResponse, FetchError, NetworkError
from uttu.model import Request

TEXT = b"<p>Warp and uttu.</p>" * 50


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # the same in all processes that collect the tests


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


async def test_response_is_whole_and_says_when(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(TEXT, "Content-Type: text/html", "X-A: 1", "X-A: 2")))
    request = Request.to(server.url + "page?q=1#part")
    before = time.monotonic()
    answer = await make().fetch(request)
    assert (answer.status, answer.body, answer.version, answer.ok) == (200, TEXT, "HTTP/1.1", True)
    assert type(answer.body) is bytes
    assert answer.url == request.url == server.url + "page?q=1"
    assert answer.request is request
    assert answer.headers["Content-Type"] == "text/html"
    assert answer.headers.get_all("x-a") == ["1", "2"]
    assert before <= answer.received <= time.monotonic()
    assert 0 < answer.elapsed < 5
    assert not answer.cached


async def test_default_headers(serve: Serve, make: MakeFetcher, way: str) -> None:
    server = await serve(reply(response()))
    await make(headers={"X-From": "settings", "ACCEPT": "text/html"}).fetch(Request.to(server.url))
    assert server.lines[0] == "GET / HTTP/1.1"
    assert server.headers == {
        "host": server.host,
        "user-agent": "Test/1",
        "accept": "text/html",
        "accept-encoding": "gzip, deflate" if way == "plain" else "gzip, deflate, br, zstd",
        "x-from": "settings",
    }


async def test_a_requests_own_method_headers_and_body(serve: Serve, make: MakeFetcher) -> None:
    bodies: list[bytes] = []

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append(await reader.readexactly(5))
        writer.write(response(b"ok"))

    server = await serve(handler)
    headers = {"accept": "application/json", "USER-AGENT": "Mine", "X-Own": "1"}
    await make().fetch(Request.to(server.url, method="PUT", headers=headers, body=b"\x00\xffabc"))
    assert server.lines[0] == "PUT / HTTP/1.1"
    assert bodies == [b"\x00\xffabc"]
    sent = server.headers
    assert (sent["accept"], sent["user-agent"], sent["x-own"]) == ("application/json", "Mine", "1")
    assert sent["content-length"] == "5"
    assert sum(line.lower().startswith("accept:") for line in server.lines) == 1


async def test_empty_post_has_content_length(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response()))
    await make().fetch(Request.to(server.url, method="POST"))
    assert server.headers["content-length"] == "0"


@pytest.mark.parametrize("status", ["201 Created", "404 Not Found", "429 Slow", "500 Oops", "999 Denied"])
async def test_any_status_is_a_response(status: str, serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"text", status=status)))
    answer = await make().fetch(Request.to(server.url))
    assert (answer.status, answer.body) == (int(status[:3]), b"text")


async def test_redirects_are_returned_not_followed(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"moved", "Location: /next", status="302 Found")))
    answer = await make().fetch(Request.to(server.url))
    assert (answer.status, answer.headers["location"], answer.body) == (302, "/next", b"moved")
    assert len(server.heads) == 1


@pytest.mark.parametrize(("charset", "place"), [("utf-8", "/café"), ("latin-1", "/caf%E9")])
async def test_headers_that_are_not_ascii(charset: str, place: str, serve: Serve, make: MakeFetcher) -> None:
    head = "HTTP/1.1 301 Moved\r\nLocation: /café\r\nX-Plain: 1\r\nContent-Length: 0\r\n\r\n"
    server = await serve(reply(head.encode(charset)))
    answer = await make().fetch(Request.to(server.url))
    assert answer.headers["x-plain"] == "1"
    assert answer.headers["location"] == place


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", packed(TEXT)),
        ("x-gzip", packed(TEXT)),
        ("GZIP", packed(TEXT)),
        ("x-gzip", packed(TEXT[:100]) + packed(TEXT[100:])),
        ("gzip", packed(TEXT) + b"\0\0\0"),
        ("gzip, gzip", packed(packed(TEXT))),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
        ("br", brotli.compress(TEXT)),
        ("zstd", zstandard.compress(TEXT)),
        ("gzip, br", brotli.compress(packed(TEXT))),
        ("identity", TEXT),
        ("utf-8", TEXT),
    ],
)
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_bodies_are_decompressed(coding: str, body: bytes, framing: str, serve: Serve, make: MakeFetcher) -> None:
    header = f"Content-Encoding: {coding}"
    whole = response(body, header) if framing == "length" else chunked(body[:7], body[7:], headers=(header,))
    server = await serve(reply(whole))
    answer = await make().fetch(Request.to(server.url))
    assert answer.body == TEXT
    if coding not in ("identity", "utf-8"):
        assert "content-encoding" not in answer.headers
        assert "content-length" not in answer.headers


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 1_000_000])
@pytest.mark.parametrize("framing", ["length", "chunked", "close", "gzip"])
async def test_bodies_of_all_sizes(size: int, framing: str, serve: Serve, make: MakeFetcher) -> None:
    body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    data = {
        "length": response(body),
        "chunked": chunked(body) if body else chunked(),
        "close": b"HTTP/1.0 200 OK\r\n\r\n" + body,
        "gzip": response(gzip.compress(body), "Content-Encoding: gzip"),
    }[framing]
    server = await serve(reply(data, then="close" if framing == "close" else "keep"))
    assert (await make().fetch(Request.to(server.url))).body == body


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"plain text"),
        ("gzip", packed(TEXT)[:-12]),
        ("deflate", b"\xff\xff\xff plain text"),
        ("br", b"plain text"),
        ("zstd", b"plain text"),
        ("zstd", zstandard.compress(TEXT)[:-12]),
        ("br, gzip", b"plain text"),
    ],
)
async def test_body_in_another_coding_than_announced(coding: str, body: bytes, serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(body, f"Content-Encoding: {coding}")))
    with pytest.raises(BadResponse, match=server.host):
        await make().fetch(Request.to(server.url))


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01garbage\r\n\r\n",
        b"<html>no head</html>",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 2_000_000,
    ],
)
async def test_garbage(data: bytes, serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(data, then="close"))
    with pytest.raises(BadResponse, match=server.host):
        await make().fetch(Request.to(server.url))


@pytest.mark.parametrize(
    "line", [b"Broken header line", b"Spaced : yes", b"Folded: a\r\n b", b": no name", b"X-Odd: \xff"]
)
async def test_headers_that_browsers_forgive(line: bytes, serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(b"HTTP/1.1 200 OK\r\n" + line + b"\r\nX-Good: 1\r\nContent-Length: 2\r\n\r\nok"))
    answer = await make().fetch(Request.to(server.url))
    assert (answer.body, answer.headers["x-good"]) == (b"ok", "1")


@pytest.mark.parametrize("body", [b"", b"abc", b"x" * 200_000])
@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_truncated_body_is_an_error(body: bytes, then: str, serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(body, length=len(body) + 10), then=then))
    with pytest.raises(NetworkError, match=server.host):
        await make().fetch(Request.to(server.url))
    server = await serve(reply(chunked(body or b"abc", end=False), then=then))
    with pytest.raises(NetworkError, match=server.host):
        await make().fetch(Request.to(server.url))


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\nX-Half"])
@pytest.mark.parametrize("then", ["close", "reset"])
async def test_host_that_closes_the_connection(data: bytes, then: str, serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(data, then=then))
    with pytest.raises(NetworkError, match=server.host):
        await make().fetch(Request.to(server.url))


async def test_a_host_that_refuses(serve: Serve, make: MakeFetcher) -> None:
    with pytest.raises(NetworkError, match=r"cannot connect to 127\.0\.0\.1:1: Connection refused"):
        await make().fetch(Request.to("http://127.0.0.1:1/"))


@pytest.mark.parametrize(
    "request_",
    [
        Request(url="http://127.0.0.1:1/", headers={"bad name": "x"}),
        Request(url="http://127.0.0.1:1/", headers={"X-A": "two\r\nlines"}),
        Request(url="http://127.0.0.1:1/", method="BAD METHOD"),
        Request(url="http://127.0.0.1:1/", cookies={"a": "b\r\nc"}),
        Request(url="http://127.0.0.1:1/", proxy="gopher://127.0.0.1"),
        Request.from_canonical("ftp://127.0.0.1/"),
    ],
)
async def test_invalid_request(request_: Request, make: MakeFetcher) -> None:
    with pytest.raises(FetchError, match="invalid request: "):
        await make().fetch(request_)


async def test_connections_are_used_again(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"ok")))
    fetcher = make()
    for _ in range(5):
        await fetcher.fetch(Request.to(server.url))
    assert (len(server.heads), server.opened) == (5, 1)


async def test_many_at_once(serve: Serve, make: MakeFetcher) -> None:
    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response(head.split(b" ")[1]))

    server = await serve(handler)
    fetcher = make()
    answers = await asyncio.gather(*(fetcher.fetch(Request.to(f"{server.url}{n}")) for n in range(200)))
    assert [answer.body.decode() for answer in answers] == [f"/{n}" for n in range(200)]


async def test_close_is_final_and_may_be_repeated(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"ok")))
    fetcher = make()
    await fetcher.fetch(Request.to(server.url))
    await fetcher.close()
    await fetcher.close()
    await asyncio.wait_for(server.hung_up.wait(), 5)
    with pytest.raises(FetchError, match="closed"):
        await fetcher.fetch(Request.to(server.url))
    with pytest.raises(FetchError, match="closed"):
        await fetcher.fetch(Request.to(server.url, proxy="http://127.0.0.1:1"))
