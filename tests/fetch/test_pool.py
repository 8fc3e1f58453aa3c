"""Connections of our own: how they are kept, watched over and given up. What all fetches share is in test_http.py."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.fetch.conftest import MakeFetcher, Serve
from tests.fetch.servers import chunked, reply, response
from uttu.errors import BadResponse, FetchError, NetworkError, TooSlow, UnknownHost
from uttu.fetch import http1, resolver
from uttu.fetch import pool as connections
from uttu.fetch.http import HttpFetcher
from uttu.fetch.pool import ConnectionPool
from uttu.model import Headers, Request

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
URL = "http://site.example/page"


def pool(fetcher: HttpFetcher) -> ConnectionPool:
    return fetcher._pool


@pytest.mark.parametrize(
    ("data", "opened"),
    [
        (response(b"ok"), 1),
        (chunked(b"ok"), 1),
        (response(status="204 Nothing"), 1),
        (response(b"ok", "Connection: close"), 3),
        (response(b"ok") + b"more", 3),
        (response(b"ok").replace(b"HTTP/1.1", b"HTTP/1.0"), 3),
    ],
)
async def test_connection_reuse_needs_a_clear_body_end(
    data: bytes, opened: int, serve: Serve, make: MakeFetcher
) -> None:
    server = await serve(reply(data))
    fetcher = make()
    for _ in range(3):
        assert (await fetcher.fetch(Request.to(server.url))).body in (b"ok", b"")
    assert (len(server.heads), server.opened) == (3, opened)


async def test_a_connection_that_the_host_closed_is_not_used(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"ok"), then="close"))
    fetcher = make()
    for _ in range(3):
        assert (await fetcher.fetch(Request.to(server.url))).body == b"ok"
        await asyncio.sleep(0.05)
    assert (len(server.heads), server.opened) == (3, 3)


async def test_closed_connection_is_not_retried(serve: Serve, make: MakeFetcher) -> None:
    async def once(head: bytes, reader: Reader, writer: Writer) -> None:
        if b"first" in head:
            writer.write(response(b"ok"))
        else:
            writer.transport.abort()

    server = await serve(once)
    fetcher = make()
    await fetcher.fetch(Request.to(server.url + "first"))
    with pytest.raises(NetworkError, match=f"the connection to {server.host} broke before the response"):
        await fetcher.fetch(Request.to(server.url + "second"))
    assert (len(server.heads), server.opened) == (2, 1)


async def test_data_on_idle_connection_is_not_a_response(serve: Serve, make: MakeFetcher) -> None:
    async def twice(head: bytes, reader: Reader, writer: Writer) -> None:
        writer.write(response(b"first"))
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(response(b"a trick"))

    server = await serve(twice)
    fetcher = make()
    assert (await fetcher.fetch(Request.to(server.url))).body == b"first"
    await asyncio.sleep(0.2)
    assert (await fetcher.fetch(Request.to(server.url))).body == b"first"
    assert server.opened == 2


async def test_idle_connections_are_closed(serve: Serve, make: MakeFetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "IDLE_SECONDS", 0.2)
    server = await serve(reply(response(b"ok")))
    fetcher = make(read_timeout=0.3)
    await fetcher.fetch(Request.to(server.url))
    await asyncio.wait_for(server.hung_up.wait(), 5)
    assert (await fetcher.fetch(Request.to(server.url))).body == b"ok"
    assert server.opened == 2


async def test_idle_connections_are_closed_whatever_the_timeouts(
    serve: Serve, make: MakeFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "IDLE_SECONDS", 0.2)
    server = await serve(reply(response(b"ok")))
    await make(read_timeout=100, timeout=100).fetch(Request.to(server.url))
    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_timeouts_start_with_each_exchange(serve: Serve, make: MakeFetcher) -> None:
    async def slow(head: bytes, reader: Reader, writer: Writer) -> None:
        await asyncio.sleep(0.5)
        writer.write(response(b"late"))

    server = await serve(slow)
    fetcher = make(timeout=1.8, read_timeout=1.8)
    for _ in range(4):
        assert (await fetcher.fetch(Request.to(server.url))).body == b"late"
    with pytest.raises(TooSlow, match=r"read_timeout=0\.1"):
        await make(read_timeout=0.1).fetch(Request.to(server.url))


async def test_a_cancelled_fetch_ends_its_exchange_and_no_other(serve: Serve, make: MakeFetcher) -> None:
    stalled = asyncio.Event()

    async def stall(head: bytes, reader: Reader, writer: Writer) -> None:
        if b"stall" in head:
            stalled.set()
            await reader.read()
        else:
            writer.write(response(b"ok"))

    server = await serve(stall)
    fetcher = make()
    await fetcher.fetch(Request.to(server.url))
    task = asyncio.create_task(fetcher.fetch(Request.to(server.url + "stall")))
    await stalled.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(server.hung_up.wait(), 5)
    assert (await fetcher.fetch(Request.to(server.url))).body == b"ok"
    assert server.opened == 2


async def test_a_fetch_that_is_cancelled_as_its_response_comes(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"ok")))
    fetcher = make()
    await fetcher.fetch(Request.to(server.url))
    for steps in range(1, 40):
        task = asyncio.create_task(fetcher.fetch(Request.to(f"{server.url}{steps}")))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await fetcher.fetch(Request.to(server.url))).body == b"ok"


async def test_close_aborts_running_fetches(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(b"", then="stall"))
    fetcher = make()
    task = asyncio.create_task(fetcher.fetch(Request.to(server.url)))
    await server.asked.wait()
    await fetcher.close()
    with pytest.raises(FetchError, match="closed during the fetch"):
        await task


async def test_closing_while_a_connection_is_made(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"ok")))
    fetcher = make()
    task = asyncio.create_task(fetcher.fetch(Request.to(server.url)))
    await asyncio.sleep(0)
    await fetcher.close()
    with pytest.raises(FetchError, match="closed"):
        await task


async def test_closing_while_a_host_does_not_accept(deaf: int, make: MakeFetcher) -> None:
    fetcher = make(connect_timeout=30)
    task = asyncio.create_task(fetcher.fetch(Request.to(f"http://127.0.0.1:{deaf}/")))
    await asyncio.sleep(0.1)
    await fetcher.close()
    with pytest.raises(FetchError, match="closed during the fetch"):
        await asyncio.wait_for(task, 10)


async def test_idle_connections_are_bounded(serve: Serve, make: MakeFetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_MAX_IDLE", 3)
    servers = [await serve(reply(response(b"ok"))) for _ in range(6)]
    fetcher = make()
    for server in (*servers, *servers[3:]):
        assert (await fetcher.fetch(Request.to(server.url))).body == b"ok"
    await asyncio.sleep(0.05)
    assert [server.opened for server in servers] == [1] * 6  # those that were used last were kept
    assert {key.split()[-1] for key in pool(fetcher)._idle} == {server.host for server in servers[3:]}
    await fetcher.fetch(Request.to(servers[0].url))
    assert servers[0].opened == 2


async def test_without_descriptors_idle_connections_make_room(serve: Serve, make: MakeFetcher) -> None:
    servers = [await serve(reply(response(b"ok"))) for _ in range(6)]
    fetcher = make()
    for server in servers[:5]:
        await fetcher.fetch(Request.to(server.url))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/dev/fd")))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
        with suppress(OSError):
            while True:
                stack.enter_context(socket.socket())
        with pytest.raises(OSError, match="Too many open files"):
            socket.socket()
        assert (await fetcher.fetch(Request.to(servers[5].url))).body == b"ok"


async def test_hosts_that_close_are_forgotten(serve: Serve, make: MakeFetcher) -> None:
    answers = iter([response(b"1"), response(b"2", "Connection: close")])

    async def answer(head: bytes, reader: Reader, writer: Writer) -> None:
        writer.write(next(answers))

    server = await serve(answer)
    fetcher = make()
    for _ in range(2):
        await fetcher.fetch(Request.to(server.url))
    assert not pool(fetcher)._idle


async def test_names_that_do_not_resolve(make: MakeFetcher) -> None:
    for name in ("nowhere.invalid", "x" * 70 + ".example"):
        with pytest.raises(UnknownHost, match=f"cannot resolve {name}: "):
            await make().fetch(Request(url=f"http://{name}/"))


async def test_temporary_dns_failure(make: MakeFetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    fetcher = make()
    monkeypatch.setattr(pool(fetcher), "connect", away)
    with pytest.raises(NetworkError, match=r"cannot resolve .*: ") as caught:
        await fetcher.fetch(Request.to(URL))
    assert not isinstance(caught.value, UnknownHost)


async def test_names_that_take_long_do_not_hold_up_others(make: MakeFetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = threading.Event()

    def look_up(name: str, *_: object, **__: object) -> list[object]:
        if name.startswith("slow"):
            slow.wait(20)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    fetcher = make()
    tasks = [asyncio.create_task(fetcher.fetch(Request.to(f"http://slow{n}.example/"))) for n in range(20)]
    await asyncio.sleep(0.1)
    with pytest.raises(UnknownHost):
        await asyncio.wait_for(fetcher.fetch(Request.to("http://quick.example/")), 10)
    slow.set()
    for failure in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(failure, UnknownHost)


async def test_name_with_a_dead_address(serve: Serve, make: MakeFetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    async def addresses(name: str) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    monkeypatch.setattr(resolver, "look_up_addresses", addresses)
    server = await serve(reply(response(b"ok")))
    url = f"{server.scheme}://site.example:{server.port}/"
    assert (await make(verify=False).fetch(Request.to(url))).body == b"ok"


async def test_name_valid_in_one_standard_only(make: MakeFetcher) -> None:
    fetcher = make()
    with pytest.raises(UnknownHost):
        await fetcher.fetch(Request.to("http://xn--a.example.invalid/"))
    jar = fetcher._jar
    assert jar is not None
    jar.store(Headers([("set-cookie", "a=1")]), "http://example.invalid/")
    with pytest.raises(UnknownHost):
        await fetcher.fetch(Request.to("http://xn--a.example.invalid/"))


async def test_cookies_of_one_name_and_several_paths(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"", "Set-Cookie: n=1; Path=/", "Set-Cookie: n=2; Path=/deep")))
    fetcher = make()
    await fetcher.fetch(Request.to(server.url))
    await fetcher.fetch(Request.to(server.url + "deep/page"))
    assert server.headers["cookie"] == "n=2; n=1"


@pytest.fixture
def deaf() -> Iterator[int]:
    """The port of a listener that accepts nobody any more."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def test_no_connection_in_time(deaf: int, make: MakeFetcher) -> None:
    with pytest.raises(TooSlow, match=rf"no connection to 127\.0\.0\.1:{deaf} within connect_timeout=0\.2 s"):
        await make(connect_timeout=0.2).fetch(Request.to(f"http://127.0.0.1:{deaf}/"))
    with pytest.raises(TooSlow, match=rf"no connection to 127\.0\.0\.1:{deaf} within timeout=0\.2 s"):
        await make(timeout=0.2).fetch(Request.to(f"http://127.0.0.1:{deaf}/"))


async def test_an_address_in_brackets(make: MakeFetcher) -> None:
    async def answer(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response(b"six", "Connection: close"))
        writer.close()

    async with await asyncio.start_server(answer, "::1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert (await make().fetch(Request.to(f"http://[::1]:{port}/"))).body == b"six"


async def test_data_before_the_first_request(make: MakeFetcher) -> None:
    async def greet(reader: Reader, writer: Writer) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(BadResponse, match="sent an invalid response: "):
            await make().fetch(Request.to(f"http://127.0.0.1:{port}/"))


async def test_response_before_request_is_invalid(make: MakeFetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    async def eager(reader: Reader, writer: Writer) -> None:
        writer.write(response(b"a trick"))
        await reader.read()
        writer.close()

    connect = connections.ConnectionPool.connect

    async def slowly(self: connections.ConnectionPool, *place: object) -> object:
        connection = await connect(self, *place)  # type: ignore[arg-type]
        await asyncio.sleep(0.1)
        return connection

    monkeypatch.setattr(connections.ConnectionPool, "connect", slowly)
    async with await asyncio.start_server(eager, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        fetcher = make()
        for _ in range(2):
            with pytest.raises(BadResponse, match="data before the request"):
                await fetcher.fetch(Request.to(f"http://127.0.0.1:{port}/"))


async def test_closed_connections_leave_nothing_behind(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(reply(response(b"ok", "Connection: close")))
    fetcher = make()
    for number in range(200):
        await fetcher.fetch(Request.to(f"{server.url}{number}"))
    await asyncio.sleep(0.1)
    assert not pool(fetcher)._open
    assert not pool(fetcher)._idle


async def test_host_that_closes_at_once(make: MakeFetcher) -> None:
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        fetcher = make()
        for _ in range(20):
            with pytest.raises(NetworkError, match="broke before the response"):
                await fetcher.fetch(Request.to(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"))
        await asyncio.sleep(0.1)
        assert not pool(fetcher)._open
