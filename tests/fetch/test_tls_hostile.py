"""TLS with hosts that mean no good, or don't care: each fetch ends in an answer or a FetchError, in bounded time."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.fetch.certificates import Authority
from tests.fetch.conftest import MakeFetcher, Serve
from tests.fetch.servers import reply, response
from uttu.errors import BadResponse, NetworkError, TLSError, TooSlow
from uttu.model import Request

Talk = Callable[[ssl.SSLSocket], None]
Host = Callable[[Talk], str]


@pytest.fixture(params=["tls"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def host(authority: Authority) -> Iterator[Host]:
    """Starts hosts with blocking sockets, which can do what an event loop does not let them."""
    with ExitStack() as stack:

        def start(talk: Talk) -> str:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            context = authority.server()

            def serve() -> None:
                with suppress(OSError):
                    while True:
                        raw, _ = listener.accept()
                        raw.settimeout(10)
                        with suppress(OSError), context.wrap_socket(raw, server_side=True) as connection:
                            _head(connection)
                            talk(connection)

            threading.Thread(target=serve, daemon=True).start()
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            return f"https://127.0.0.1:{listener.getsockname()[1]}/"

        yield start


def _head(connection: ssl.SSLSocket) -> None:
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        data += connection.recv(1000)


UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\nwarp and uttu"


async def test_tls_end_with_close_notify(host: Host, make: MakeFetcher) -> None:
    def talk(connection: ssl.SSLSocket) -> None:
        connection.sendall(UNTIL_CLOSED)
        connection.unwrap()

    assert (await make().fetch(Request.to(host(talk)))).body == b"warp and uttu"


async def test_tls_end_without_close_notify(host: Host, make: MakeFetcher) -> None:
    """Many servers just close. Browsers take what came as the body."""

    def talk(connection: ssl.SSLSocket) -> None:
        connection.sendall(UNTIL_CLOSED)
        connection.shutdown(socket.SHUT_RDWR)

    assert (await make().fetch(Request.to(host(talk)))).body == b"warp and uttu"


async def test_body_cut_without_close_notify(host: Host, make: MakeFetcher) -> None:
    def talk(connection: ssl.SSLSocket) -> None:
        connection.sendall(response(b"warp", length=100))
        connection.shutdown(socket.SHUT_RDWR)

    with pytest.raises(NetworkError, match="broke before the body was complete"):
        await make().fetch(Request.to(host(talk)))


@pytest.mark.parametrize("http2", [True, False])
async def test_response_and_close_notify_in_one_read(http2: bool, host: Host, make: MakeFetcher) -> None:
    """Both sides close at the same moment."""

    def talk(connection: ssl.SSLSocket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        connection.sendall(response(b"ok", "Connection: close"))
        with suppress(ssl.SSLError):
            connection.settimeout(0.2)
            connection.unwrap()

    url = host(talk)
    fetcher = make(http2=http2)
    for _ in range(3):
        assert (await asyncio.wait_for(fetcher.fetch(Request.to(url)), 10)).body == b"ok"


async def test_garbage_after_close_notify(host: Host, make: MakeFetcher) -> None:
    def talk(connection: ssl.SSLSocket) -> None:
        connection.sendall(UNTIL_CLOSED)
        with suppress(ssl.SSLError):
            connection.settimeout(0.2)
            connection.unwrap()
        with suppress(OSError):
            for _ in range(100):
                socket.socket.sendall(connection, b"garbage" * 1000)

    assert (await make().fetch(Request.to(host(talk)))).body == b"warp and uttu"


async def test_garbage_instead_of_a_record(host: Host, make: MakeFetcher) -> None:
    def talk(connection: ssl.SSLSocket) -> None:
        connection.sendall(response(b"warp", length=100))
        with socket.socket(fileno=connection.detach()) as raw:
            raw.sendall(b"garbage" * 1000)
            with suppress(OSError):
                raw.recv(1)

    with pytest.raises((NetworkError, BadResponse)):
        await asyncio.wait_for(make().fetch(Request.to(host(talk))), 10)


async def test_tls_close_notify_at_once(host: Host, make: MakeFetcher) -> None:
    with pytest.raises(NetworkError, match="broke before the response"):
        await make().fetch(Request.to(host(lambda connection: None)))


async def test_tls_close_notify_without_close(host: Host, make: MakeFetcher) -> None:
    over = threading.Event()

    def talk(connection: ssl.SSLSocket) -> None:
        connection.sendall(UNTIL_CLOSED)
        with suppress(ssl.SSLError):
            connection.settimeout(0.2)
            connection.unwrap()
        over.wait(10)

    started = time.monotonic()
    assert (await make().fetch(Request.to(host(talk)))).body == b"warp and uttu"
    assert time.monotonic() - started < 5
    over.set()


async def test_a_drip_of_single_bytes(host: Host, make: MakeFetcher) -> None:
    def talk(connection: ssl.SSLSocket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            connection.sendall(b"x")
            time.sleep(0.02)

    with pytest.raises(TooSlow, match=r"within timeout=1\.5 s"):
        await make(timeout=1.5, read_timeout=5).fetch(Request.to(host(talk)))


@pytest.mark.parametrize(
    "greeting", [b"", b"\x15\x03\x01\x00\x02\x02\x28", b"\x16\x03\x03\xff\xff" + b"x" * 70_000, b"GET"]
)
async def test_no_handshake(greeting: bytes, make: MakeFetcher) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(greeting)
        with suppress(OSError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises(NetworkError, match=r"TLS handshake with|cannot connect to"):
            await asyncio.wait_for(make().fetch(Request.to(url)), 10)


async def test_only_an_old_version(serve: Serve, make: MakeFetcher, authority: Authority) -> None:
    context = authority.server()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    server = await serve(reply(response(b"ok")), context)
    fetcher = make()
    assert (await fetcher.fetch(Request.to(server.url))).body == b"ok"


async def test_huge_certificate(serve: Serve, make: MakeFetcher, authority: Authority, tmp_path: Path) -> None:
    """A chain of a thousand certificates, half a megabyte: OpenSSL stops at 100 KB."""
    context = authority.server("huge.example")
    own = next(authority.file.parent.glob("huge.example*.pem")).read_bytes()
    chain = tmp_path / "chain.pem"
    chain.write_bytes(own + authority.file.read_bytes() * 1000)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server = await serve(reply(response(b"ok")), context)
    with pytest.raises(TLSError):
        await make(verify=False).fetch(Request.to(server.url))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_session_is_resumed(
    version: ssl.TLSVersion, serve: Serve, make: MakeFetcher, authority: Authority
) -> None:
    context = authority.server()
    context.minimum_version = context.maximum_version = version
    server = await serve(reply(response(b"ok", "Connection: close")), context)
    fetcher = make()
    for number in range(4):
        assert (await fetcher.fetch(Request.to(f"{server.url}{number}"))).body == b"ok"
    assert server.opened == 4
    assert context.session_stats()["hits"] == 3


async def test_a_session_does_not_outlive_the_trust(serve: Serve, make: MakeFetcher, authority: Authority) -> None:
    """Sessions belong to a fetcher: another one checks the certificate itself."""
    server = await serve(reply(response(b"ok")), authority.server())
    assert (await make(verify=False).fetch(Request.to(server.url))).body == b"ok"
    with pytest.raises(TLSError):
        await make(ca_file="").fetch(Request.to(server.url))
