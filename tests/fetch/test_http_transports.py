"""One suite for all ways to fetch: without TLS, with it, by HTTP/2, and each of them through a proxy."""

from __future__ import annotations

import asyncio
import gzip
import random
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import brotli
import pytest
import zstandard

from tests.fetch.certificates import Authority
from tests.fetch.replies import Answering, Http2, Log, Reply, http1
from tests.fetch.servers import forward, serving
from uttu.errors import BadResponse, NetworkError, TooLarge, TooSlow
from uttu.fetch.http import HttpFetcher
from uttu.model import Request

TEXT = b"<p>Warp and uttu.</p>" * 50
NOISE = random.Random(7).randbytes(300_000)
MB = 1024 * 1024


@pytest.fixture(params=["plain", "tls", "http2", "plain by proxy", "tls by proxy", "http2 by proxy"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Site:
    def __init__(self, url: str, log: Log, fetcher: Callable[..., HttpFetcher]) -> None:
        self.url = url
        self.log = log
        self._make = fetcher

    async def fetch(self, path: str = "", *, first: int | None = None, method: str = "GET", **options: Any) -> Any:
        named = {name: options.pop(name) for name in ("body", "headers", "cookies") if name in options}
        request = Request.to(self.url + path, method=method, **named)
        return await self.fetcher(**options).fetch(request, first=first)

    def fetcher(self, **options: Any) -> HttpFetcher:
        return self._make(**options)


Open = Callable[[Answering | Reply], Awaitable[Site]]


@pytest.fixture
async def site(way: str, authority: Authority) -> AsyncIterator[Open]:
    """Opens a site that answers by the way in question, with fetchers that use it."""
    opened: set[asyncio.Transport] = set()
    made: dict[str, HttpFetcher] = {}
    async with AsyncExitStack() as stack:
        common: dict[str, Any] = {"user_agent": "Test/1", "ca_file": authority.file}
        if way.endswith("proxy"):
            proxy = await stack.enter_async_context(serving(forward))
            common["proxy"] = f"http://{proxy.host}"

        def fetcher(**options: Any) -> HttpFetcher:
            key = repr(sorted(options.items()))
            if key not in made:
                made[key] = HttpFetcher(**{**common, **options})
            return made[key]

        async def open_site(answer: Answering | Reply) -> Site:
            answering = (lambda _: answer) if isinstance(answer, Reply) else answer
            log = Log()
            if way.startswith("http2"):
                tls = authority.server(alpn=("h2", "http/1.1"))
                server = await asyncio.get_running_loop().create_server(
                    lambda: Http2(answering, log, opened), "127.0.0.1", 0, ssl=tls
                )
                stack.callback(server.close)
                return Site(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/", log, fetcher)
            tls_context = authority.server() if way.startswith("tls") else None
            running = await stack.enter_async_context(serving(http1(answering, log), tls_context))
            return Site(running.url, log, fetcher)

        yield open_site
        for each in made.values():
            await each.close()
        for transport in tuple(opened):
            transport.abort()
        await asyncio.sleep(0.01)


async def test_negotiated_protocol(site: Open, way: str) -> None:
    opened = await site(Reply(TEXT, ((b"Content-Type", b"text/html"), (b"X-A", b"1"), (b"x-a", b"2"))))
    answer = await opened.fetch("page?q=1")
    assert answer.version == ("HTTP/2.0" if way.startswith("http2") else "HTTP/1.1")
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, TEXT, "text/html")
    assert answer.headers.get_all("x-a") == ["1", "2"]
    assert opened.log.asked[0].path == "/page?q=1"
    assert opened.log.asked[0].headers["user-agent"] == "Test/1"


@pytest.mark.parametrize("status", [201, 204, 302, 304, 404, 429, 503, 999])
async def test_any_status_is_a_response(status: int, site: Open) -> None:
    opened = await site(Reply(b"text", ((b"Location", b"/next"),), status))
    answer = await opened.fetch()
    assert (answer.status, answer.headers["location"]) == (status, "/next")
    assert answer.body == (b"" if status in (204, 304) else b"text")
    assert len(opened.log.asked) == 1


ODD_VALUES = {
    "UTF-8": ("/café?q=ü".encode(), "/café?q=ü"),
    "Latin-1": ("/café?q=ü".encode("latin-1"), "/caf%E9?q=%FC"),
    "Shift JIS": ("/ページ".encode("shift_jis"), "/%83y%81[%83W"),
}


@pytest.mark.parametrize("charset", ODD_VALUES)
async def test_values_that_are_not_ascii(charset: str, site: Open) -> None:
    raw, place = ODD_VALUES[charset]
    fields = ((b"Location", raw), (b"Content-Type", b"text/html; x=" + raw), (b"X-Good", b"1"))
    answer = await (await site(Reply(b"moved", fields, 302))).fetch()
    assert answer.headers["location"] == place
    assert answer.headers["content-type"].startswith("text/html; x=/")
    assert answer.headers["x-good"] == "1"


async def test_a_cookie_that_is_not_ascii_and_one_beside_it(site: Open) -> None:
    opened = await site(Reply(b"", ((b"Set-Cookie", "name=é".encode()), (b"Set-Cookie", b"good=1; Path=/"))))
    answer = await opened.fetch()
    assert answer.headers.get_all("set-cookie") == ["name=é", "good=1; Path=/"]
    await opened.fetch("next")
    assert "good=1" in opened.log.asked[1].headers["cookie"]


async def test_hundreds_of_header_lines(site: Open) -> None:
    fields = tuple((b"X-%d" % number, b"%d" % number) for number in range(500))
    answer = await (await site(Reply(TEXT, (*fields, (b"Set-Cookie", b"a=1"))))).fetch()
    assert [answer.headers[f"x-{number}"] for number in range(500)] == [str(number) for number in range(500)]
    assert answer.body == TEXT


@pytest.mark.parametrize("size", [20_000, 50_000])
async def test_a_long_value(size: int, site: Open) -> None:
    answer = await (await site(Reply(TEXT, ((b"X-Long", b"x" * size), (b"X-End", b"1"))))).fetch()
    assert (len(answer.headers["x-long"]), answer.headers["x-end"], answer.body) == (size, "1", TEXT)


async def test_a_head_without_end(site: Open) -> None:
    fields = tuple((b"X-%d" % number, b"x" * 8000) for number in range(40))
    with pytest.raises(BadResponse, match="longer than"):
        await (await site(Reply(TEXT, fields))).fetch()


async def test_headers_that_say_nothing(site: Open) -> None:
    fields = ((b"X-Empty", b""), (b"X-Spaces", b"  a  b  "), (b"X-Control", b"a\x01b"), (b"X-Good", b"1"))
    answer = await (await site(Reply(TEXT, fields))).fetch()
    assert (answer.headers["x-empty"], answer.headers["x-spaces"], answer.headers["x-good"]) == ("", "a  b", "1")
    assert "x-control" not in answer.headers


def packed(data: bytes, members: int = 1) -> bytes:
    size = len(data) // members + 1
    return b"".join(gzip.compress(data[at : at + size], mtime=0) for at in range(0, len(data), size))


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODINGS: dict[str, tuple[tuple[bytes, ...], bytes]] = {
    "none": ((), TEXT),
    "gzip": ((b"gzip",), packed(TEXT)),
    "two members": ((b"gzip",), packed(TEXT, 2)),
    "a hundred members": ((b"gzip",), packed(TEXT, 100)),
    "capitals": ((b"X-GZIP",), packed(TEXT)),
    "garbage after gzip": ((b"gzip",), packed(TEXT) + b"\0\0garbage"),
    "zlib": ((b"deflate",), zlib.compress(TEXT)),
    "raw deflate": ((b"deflate",), raw_deflate(TEXT)),
    "garbage after deflate": ((b"deflate",), zlib.compress(TEXT) + b"garbage"),
    "br": ((b"br",), brotli.compress(TEXT)),
    "garbage after br": ((b"br",), brotli.compress(TEXT) + b"garbage"),
    "zstd": ((b"zstd",), zstandard.compress(TEXT)),
    "two frames of zstd": ((b"zstd",), zstandard.compress(TEXT[:50]) + zstandard.compress(TEXT[50:])),
    "two codings": ((b"deflate, gzip",), packed(zlib.compress(TEXT))),
    "two lines": ((b"deflate", b"gzip"), packed(zlib.compress(TEXT))),
    "three lines": ((b"br", b"utf-8", b"gzip"), packed(brotli.compress(TEXT))),
    "identity": ((b"identity",), TEXT),
    "nonsense": ((b"utf-8",), TEXT),
    "empty": ((b"",), TEXT),
}


@pytest.mark.parametrize(("kind", "framing"), [*((kind, "length") for kind in CODINGS), ("two members", "chunked")])
async def test_bodies_are_decompressed(kind: str, framing: str, site: Open) -> None:
    codings, body = CODINGS[kind]
    fields = tuple((b"Content-Encoding", coding) for coding in codings)
    answer = await (await site(Reply(body, fields, framing=framing))).fetch()
    assert answer.body == TEXT


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        (b"gzip", b"plain text"),
        (b"gzip", packed(TEXT)[:-12]),
        (b"gzip", packed(TEXT) + packed(TEXT)[:-12]),
        (b"gzip, gzip", packed(TEXT)),
        (b"deflate", b"\xff\xff\xff plain text"),
        (b"br", b"plain text"),
        (b"br", brotli.compress(TEXT)[:-3]),
        (b"zstd", b"plain text"),
        (b"zstd", zstandard.compress(TEXT)[:-3]),
        (b"compress", b"\x1f\x9d"),
        (b"gzip," * 9, packed(TEXT)),
    ],
)
async def test_body_in_another_coding_than_announced(coding: bytes, body: bytes, site: Open) -> None:
    with pytest.raises(BadResponse, match="does not decode as"):
        await (await site(Reply(body, ((b"Content-Encoding", coding),)))).fetch()


@pytest.mark.parametrize("size", [0, 16_383, 300_000, 3_000_000])
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_bodies_of_all_sizes(size: int, framing: str, site: Open) -> None:
    body = (NOISE * 10)[:size]
    assert (await (await site(Reply(body, framing=framing))).fetch()).body == body


@pytest.mark.parametrize(
    ("method", "size"), [("POST", 0), ("POST", 10), ("POST", 300_000), ("PUT", 0), ("DELETE", 10), ("OPTIONS", 0)]
)
async def test_request_as_sent(method: str, size: int, site: Open) -> None:
    opened = await site(Reply(b"ok"))
    answer = await opened.fetch("form", method=method, body=NOISE[:size], headers={"X-Own": "1"}, cookies={"a": "b"})
    assert answer.body == b"ok"
    asked = opened.log.asked[0]
    assert (asked.method, asked.path, asked.body) == (method, "/form", NOISE[:size])
    assert (asked.headers["x-own"], asked.headers["cookie"]) == ("1", "a=b")
    if size or method in ("POST", "PUT", "PATCH"):
        assert asked.headers["content-length"] == str(size)


async def test_head_response_has_no_body(site: Open) -> None:
    opened = await site(Reply(b"", ((b"Content-Length", b"1000000000000"), (b"X-Good", b"1"))))
    for _ in range(2):
        answer = await opened.fetch(method="HEAD")
        assert (answer.status, answer.body, answer.headers["x-good"]) == (200, b"", "1")


async def test_a_login_in_the_url(site: Open) -> None:
    opened = await site(Reply(b"ok"))
    opened.url = opened.url.replace("://", "://user:p%40ss@")
    await opened.fetch()
    assert opened.log.asked[0].headers["authorization"] == "Basic dXNlcjpwQHNz"


async def test_many_at_once(site: Open) -> None:
    opened = await site(lambda asked: Reply(asked.path.encode() * 100))
    answers = await asyncio.gather(*(opened.fetch(str(number)) for number in range(150)))
    assert [answer.body for answer in answers] == [f"/{number}".encode() * 100 for number in range(150)]


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_a_body_beyond_the_limit(coding: str, framing: str, site: Open) -> None:
    fields = ((b"Content-Encoding", b"gzip"),) if coding else ()
    body = gzip.compress(bytes(2 * MB)) if coding else bytes(2 * MB)
    opened = await site(Reply(body, fields, framing=framing))
    with pytest.raises(TooLarge, match="max_body=1048576"):
        await opened.fetch(max_body=MB)
    assert len((await opened.fetch(max_body=2 * MB)).body) == 2 * MB


async def test_first_bytes_of_a_body(site: Open) -> None:
    opened = await site(Reply(NOISE))
    answer = await opened.fetch(first=100_000, max_body=10)
    assert (answer.body, answer.cut) == (NOISE[:100_000], True)
    answer = await opened.fetch(first=300_000, max_body=10)
    assert (answer.body, answer.cut) == (NOISE, False)


async def test_an_announced_body_is_not_even_read(site: Open) -> None:
    with pytest.raises(TooLarge, match=r"larger than max_body=.* \(Content-Length: 1000000000000000\)"):
        await (await site(Reply(TEXT, ((b"Content-Length", b"1000000000000000"),), stalls=True))).fetch()


@pytest.mark.parametrize("text", [b"abc", b"-5", b"12abc", b"+7", b"", b"0x5"])
async def test_invalid_content_length(text: bytes, site: Open) -> None:
    """Browsers read to the end."""
    answer = await (await site(Reply(TEXT, ((b"Content-Length", text),), framing="close"))).fetch()
    assert (answer.status, answer.body) == (200, TEXT)


async def test_two_lengths(site: Open) -> None:
    same = (b"Content-Length", b"%d" % len(TEXT))
    assert (await (await site(Reply(TEXT, (same, same)))).fetch()).body == TEXT
    with pytest.raises(BadResponse, match="conflicting Content-Length"):
        await (await site(Reply(TEXT, (same, (b"Content-Length", b"7"))))).fetch()


async def test_wrong_content_length(site: Open) -> None:
    opened = await site(Reply(TEXT, ((b"Content-Length", b"%d" % (len(TEXT) + 10)),), framing="close"))
    with pytest.raises((NetworkError, BadResponse)):
        await opened.fetch()


@pytest.mark.parametrize("body", [b"", NOISE])
async def test_read_timeout(body: bytes, site: Open) -> None:
    opened = await site(Reply(body, stalls=True))
    with pytest.raises(TooSlow, match=r"sent nothing for read_timeout=0\.3 s"):
        await opened.fetch(read_timeout=0.3)
    await asyncio.wait_for(opened.log.ended.wait(), 5)


async def test_total_timeout(site: Open) -> None:
    opened = await site(Reply(NOISE, stalls=True))
    started = time.monotonic()
    with pytest.raises(TooSlow, match=r"within timeout=1 s"):
        await opened.fetch(timeout=1.0)
    assert time.monotonic() - started < 4


async def test_a_cancelled_fetch_ends_its_exchange(site: Open) -> None:
    opened = await site(lambda asked: Reply(NOISE, stalls=asked.path == "/stall"))
    assert (await opened.fetch()).body == NOISE
    task = asyncio.create_task(opened.fetch("stall"))
    opened.log.came.clear()
    await opened.log.came.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(opened.log.ended.wait(), 5)
    assert (await opened.fetch()).body == NOISE


async def test_a_bomb_does_not_stop_the_loop(site: Open) -> None:
    """16 KB that become 16 MB, and 2 million members within them: other tasks run all the while."""
    inner = gzip.compress(b"", mtime=0) * 500_000
    bombs = [
        ((b"gzip, gzip",), gzip.compress(inner, 9)),
        ((b"gzip",), gzip.compress(bytes(16 * MB), 9)),
        ((b"br",), brotli.compress(bytes(16 * MB), quality=5)),
    ]
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - before)

    for codings, body in bombs:
        opened = await site(Reply(body, tuple((b"Content-Encoding", coding) for coding in codings)))
        task = asyncio.create_task(beat())
        with pytest.raises((BadResponse, TooLarge)):
            await opened.fetch(max_body=15 * MB)
        task.cancel()
    assert longest < 0.2  # of CPU, the server's share included; 20 ms on an idle machine
