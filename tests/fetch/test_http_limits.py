from __future__ import annotations

import asyncio
import gzip
import random
import time
import zlib

import brotli
import psutil
import pytest

from tests.fetch.conftest import MakeFetcher, Serve
from tests.fetch.servers import chunked, endless, reply, response
from uttu.errors import BadResponse, TooLarge, TooSlow
from uttu.model import Request

MB = 1024 * 1024


async def test_a_body_of_exactly_the_limit(serve: Serve, make: MakeFetcher) -> None:
    for data in (
        response(b"x" * 100_000),
        chunked(b"x" * 100_000),
        response(gzip.compress(b"x" * 100_000), "Content-Encoding: gzip"),
        response(brotli.compress(b"x" * 100_000), "Content-Encoding: br"),
    ):
        server = await serve(reply(data))
        request = Request.to(server.url, headers={"Accept-Encoding": "br"} if b": br" in data else {})
        answer = await make(max_body=100_000).fetch(request)
        assert len(answer.body) == 100_000
        with pytest.raises(TooLarge, match="max_body=99999"):
            await make(max_body=99_999).fetch(request)


async def test_an_announced_body_is_not_even_read(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"x" * 70_000, length=10**15), then="stall"))
    with pytest.raises(TooLarge, match=r"larger than max_body=.* \(Content-Length: 1000000000000000\)"):
        await make().fetch(Request.to(server.url))
    await asyncio.wait_for(server.hung_up.wait(), 5)


@pytest.mark.parametrize("status", ["304 Not Modified", "200 OK"])
async def test_the_length_of_a_body_that_does_not_follow(status: str, serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(status=status, length=10**15)))
    method = "HEAD" if status == "200 OK" else "GET"
    answer = await make(max_body=10).fetch(Request.to(server.url, method=method))
    assert answer.body == b""


async def test_an_endless_body(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(endless)
    with pytest.raises(TooLarge, match=server.host):
        await make(max_body=MB).fetch(Request.to(server.url))
    await asyncio.wait_for(server.hung_up.wait(), 5)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "br"])
async def test_a_bomb_takes_no_more_memory_than_the_limit(coding: str, serve: Serve, make: MakeFetcher) -> None:
    zeros = bytes(300 * MB)
    bomb = brotli.compress(zeros, quality=1) if coding == "br" else gzip.compress(zeros, 1)
    del zeros
    server = await serve(reply(response(bomb, f"Content-Encoding: {coding}")))
    fetcher = make(max_body=2 * MB)
    request = Request.to(server.url, headers={"Accept-Encoding": coding} if coding == "br" else {})
    process = psutil.Process()
    before = process.memory_info().rss
    for _ in range(5):
        with pytest.raises(TooLarge, match="max_body"):
            await fetcher.fetch(request)
    assert process.memory_info().rss - before < 40 * MB


LINES = b"".join(b"%07d\n" % number for number in range(20_000))
NOISE = random.Random(1).randbytes(160_000)


@pytest.mark.parametrize(
    ("sent", "whole"),
    [
        (response(LINES), LINES),
        (response(LINES * 10, length=10**15), LINES),
        (chunked(LINES[:50_000], LINES[50_000:]), LINES),
        (b"HTTP/1.1 200 OK\r\n\r\n" + LINES, LINES),
        (response(gzip.compress(LINES), "Content-Encoding: gzip"), LINES),
        (response(gzip.compress(LINES), "Content-Encoding: x-gzip"), LINES),
        (response(zlib.compress(LINES), "Content-Encoding: deflate"), LINES),
        (response(gzip.compress(gzip.compress(LINES)), "Content-Encoding: gzip, gzip"), LINES),
        (response(brotli.compress(LINES), "Content-Encoding: br"), LINES),
        (response(LINES, "Content-Encoding: utf-8"), LINES),
    ],
)
async def test_first_bytes_of_a_body(sent: bytes, whole: bytes, serve: Serve, make: MakeFetcher) -> None:
    """Whatever the limit for pages is."""
    server = await serve(reply(sent, then="stall"))
    answer = await make(max_body=10).fetch(Request.to(server.url), first=100_000)
    assert (answer.body, answer.cut) == (whole[:100_000], True)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip"])
async def test_first_bytes_of_a_large_compressed_body(coding: str, serve: Serve, make: MakeFetcher) -> None:
    """As many bytes are read of it; they stand for about as many, if not for more."""
    server = await serve(reply(response(gzip.compress(NOISE), f"Content-Encoding: {coding}")))
    answer = await make(max_body=10).fetch(Request.to(server.url), first=100_000)
    assert answer.cut
    assert NOISE.startswith(answer.body)
    assert len(answer.body) > 99_000


@pytest.mark.parametrize(
    "data", [response(b"x" * 70_000), response(gzip.compress(b"x" * 70_000), "Content-Encoding: gzip")]
)
async def test_body_shorter_than_first(data: bytes, serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(data))
    fetcher = make(max_body=10)
    for first in (70_000, 80_000):
        answer = await fetcher.fetch(Request.to(server.url), first=first)
        assert (len(answer.body), answer.cut) == (70_000, False)
    assert server.opened == 1


@pytest.mark.parametrize("coding", ["gzip", "x-gzip"])
async def test_first_bytes_of_an_endless_compressed_body(coding: str, serve: Serve, make: MakeFetcher) -> None:
    async def endless_noise(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\n".encode())
        stream = zlib.compressobj(wbits=31)
        while True:
            writer.write(stream.compress(NOISE))
            await writer.drain()
            await asyncio.sleep(0)

    server = await serve(endless_noise)
    answer = await make(max_body=10).fetch(Request.to(server.url), first=MB // 2)
    assert answer.cut
    assert (NOISE * 4).startswith(answer.body)
    assert len(answer.body) > 500 * 1024
    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_first_bytes_of_an_endless_body(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(endless)
    answer = await make(max_body=10).fetch(Request.to(server.url), first=MB)
    assert (answer.body, answer.cut) == (b"x" * MB, True)
    await asyncio.wait_for(server.hung_up.wait(), 5)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip"])
async def test_truncated_body_with_first_is_an_error(coding: str, serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(gzip.compress(b"short")[:-9], f"Content-Encoding: {coding}")))
    with pytest.raises(BadResponse):
        await make().fetch(Request.to(server.url), first=100_000)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", response(b"abc", length=10)])
async def test_read_timeout(sent: bytes, serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(sent, then="stall"))
    with pytest.raises(TooSlow, match=r"sent nothing for read_timeout=0\.2 s"):
        await make(read_timeout=0.2).fetch(Request.to(server.url))


async def test_read_timeout_within_a_large_body(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"x" * 100_000, length=200_000), then="stall"))
    with pytest.raises(TooSlow, match=r"read_timeout=0\.2"):
        await make(read_timeout=0.2).fetch(Request.to(server.url))


@pytest.mark.parametrize("first", [b"", b"x" * 100_000])
async def test_total_timeout_while_data_arrives(first: bytes, serve: Serve, make: MakeFetcher) -> None:
    async def trickle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response(first, length=10**6))
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    server = await serve(trickle)
    started = time.monotonic()
    with pytest.raises(TooSlow, match=r"within timeout=1 s"):
        await make(timeout=1.0, read_timeout=5).fetch(Request.to(server.url))
    assert time.monotonic() - started < 3


async def test_total_timeout_without_response(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(b"", then="stall"))
    with pytest.raises(TooSlow, match=r"within timeout=1 s"):
        await make(timeout=1.0, read_timeout=5).fetch(Request.to(server.url))


async def test_a_handshake_that_takes_too_long(make: MakeFetcher) -> None:
    """The TLS handshake belongs to connecting."""
    hung_up = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        hung_up.set()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(TooSlow, match=rf"no connection to {host} within connect_timeout=0\.2 s"):
            await make(connect_timeout=0.2).fetch(Request.to(f"https://{host}/"))
        await asyncio.wait_for(hung_up.wait(), 5)


async def test_cancelling_within_the_body_ends_the_exchange(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"x" * 100_000, length=200_000), then="stall"))
    task = asyncio.create_task(make().fetch(Request.to(server.url)))
    await server.asked.wait()
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_cancelling_before_the_head_returns_at_once(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(b"", then="stall"))
    task = asyncio.create_task(make(timeout=1).fetch(Request.to(server.url)))
    await server.asked.wait()
    task.cancel()
    started = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 0.5
    await asyncio.wait_for(server.hung_up.wait(), 5)
