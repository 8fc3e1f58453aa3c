from __future__ import annotations

import asyncio
import base64
import contextlib

import pytest

from tests.fetch.certificates import Authority
from tests.fetch.conftest import MakeFetcher, Serve
from tests.fetch.servers import Handler, reply, response, splice
from uttu.errors import ConfigError, NetworkError
from uttu.fetch.http import HttpFetcher
from uttu.model import Request


@pytest.fixture(params=["plain"])
def way(request: pytest.FixtureRequest) -> str:
    """The tests say themselves where there is TLS."""
    return str(request.param)


def proxy(name: bytes = b"through the proxy", tunnel: bytes = b"200 OK") -> Handler:
    """Answers plain requests by itself, and tunnels CONNECT."""

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = head.split(b" ", 2)
        if method != b"CONNECT":
            writer.write(response(name + b" " + target))
            return
        writer.write(b"HTTP/1.1 " + tunnel + b"\r\n\r\n")
        if tunnel.startswith(b"200"):
            host, _, port = target.decode().partition(":")
            await splice(reader, writer, host, int(port))
        writer.close()

    return handler


async def test_http_goes_through_the_proxy_with_its_login(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(proxy())
    fetcher = make(proxy=f"http://user:p%40ss@{server.host}")
    answer = await fetcher.fetch(Request.to("http://site.example/page"))
    assert answer.body == b"through the proxy http://site.example/page"
    assert answer.url == "http://site.example/page"
    login = base64.b64encode(b"user:p@ss").decode()
    assert server.headers["proxy-authorization"] == f"Basic {login}"
    assert server.headers["host"] == "site.example"


async def test_https_goes_through_a_tunnel(serve: Serve, make: MakeFetcher, authority: Authority) -> None:
    site = await serve(reply(response(b"safe")), authority.server())
    server = await serve(proxy())
    fetcher = make(proxy=f"http://user:pass@{server.host}", ca_file=authority.file)
    assert (await fetcher.fetch(Request.to(site.url))).body == b"safe"
    assert server.lines[0] == f"CONNECT {site.host} HTTP/1.1"
    assert "proxy-authorization" in server.headers
    assert "proxy-authorization" not in site.headers


async def test_a_requests_own_proxy_wins(serve: Serve, make: MakeFetcher) -> None:
    first, second = await serve(proxy(b"first")), await serve(proxy(b"second"))
    fetcher = make(proxy=f"http://{first.host}")
    own = Request.to("http://site.example/", proxy=f"http://{second.host}")
    assert (await fetcher.fetch(own)).body.startswith(b"second")
    assert (await fetcher.fetch(Request.to("http://site.example/"))).body.startswith(b"first")


async def test_the_environment_is_ignored(serve: Serve, make: MakeFetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server = await serve(reply(response(b"direct")))
    assert (await make().fetch(Request.to(server.url))).body == b"direct"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_is_down(scheme: str, make: MakeFetcher) -> None:
    request = Request.to(f"{scheme}://site.example/", proxy="http://user:secret@127.0.0.1:1")
    with pytest.raises(NetworkError, match=r"through the proxy 127\.0\.0\.1:1.*refused") as caught:
        await make().fetch(request)
    assert "secret" not in str(caught.value)


async def test_a_proxy_that_will_not_tunnel(serve: Serve, make: MakeFetcher) -> None:
    server = await serve(proxy(tunnel=b"407 Who are you"))
    with pytest.raises(NetworkError, match=f"through the proxy {server.host}"):
        await make(proxy=f"http://{server.host}").fetch(Request.to("https://site.example/"))


@pytest.mark.parametrize("url", ["127.0.0.1:3128", "gopher://127.0.0.1", "http://", "http://user:secret@:x/"])
def test_invalid_proxy_setting(url: str) -> None:
    with pytest.raises(ConfigError, match="proxy=") as caught:
        HttpFetcher(user_agent="x", proxy=url)
    assert "secret" not in str(caught.value)


async def socks5(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """RFC 1928 and 1929, as much as one client needs: login user:pass, CONNECT to an address."""
    assert await reader.readexactly(1) == b"\x05"
    await reader.readexactly((await reader.readexactly(1))[0])
    writer.write(b"\x05\x02")
    assert await reader.readexactly(11) == b"\x01\x04user\x04pass"
    writer.write(b"\x01\x00")
    assert await reader.readexactly(4) == b"\x05\x01\x00\x01"
    host = ".".join(str(part) for part in await reader.readexactly(4))
    port = int.from_bytes(await reader.readexactly(2), "big")
    writer.write(b"\x05\x00\x00\x01" + bytes(6))
    with contextlib.suppress(asyncio.CancelledError):
        await splice(reader, writer, host, port)


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
async def test_socks5(scheme: str, serve: Serve, make: MakeFetcher) -> None:
    site = await serve(reply(response(b"by socks")))
    async with await asyncio.start_server(socks5, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        fetcher = make(proxy=f"{scheme}://user:pass@127.0.0.1:{port}")
        assert (await fetcher.fetch(Request.to(site.url))).body == b"by socks"
        await fetcher.close()
