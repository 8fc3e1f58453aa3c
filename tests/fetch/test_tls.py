from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar, cast

import h2.config
import h2.connection
import h2.events
import pytest

from tests.fetch.certificates import Authority
from tests.fetch.conftest import MakeFetcher, Serve
from tests.fetch.servers import reply, response
from uttu.errors import BadResponse, ConfigError, NetworkError, TLSError
from uttu.fetch.http import HttpFetcher
from uttu.model import Request


@pytest.fixture(params=["plain"])
def way(request: pytest.FixtureRequest) -> str:
    """The tests say themselves where there is TLS."""
    return str(request.param)


async def test_a_trusted_authority(serve: Serve, make: MakeFetcher, authority: Authority, tmp_path: Path) -> None:
    server = await serve(reply(response(b"safe")), authority.server())
    for ca_file in (authority.file, str(authority.file)):
        assert (await make(ca_file=ca_file).fetch(Request.to(server.url))).body == b"safe"
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(Authority(tmp_path).file.read_bytes() + b"# a comment\n" + authority.file.read_bytes())
    assert (await make(ca_file=bundle).fetch(Request.to(server.url))).body == b"safe"


async def test_unknown_authority_is_refused_with_a_hint(serve: Serve, make: MakeFetcher, authority: Authority) -> None:
    server = await serve(reply(response(b"safe")), authority.server())
    with pytest.raises(TLSError, match=rf"{server.host} is not valid: UnknownIssuer.*ca_file.*verify=false"):
        await make().fetch(Request.to(server.url))
    assert (await make(verify=False).fetch(Request.to(server.url))).body == b"safe"


@pytest.mark.parametrize(
    ("host", "days", "why"), [("127.0.0.1", -1, "expired"), ("other.example", 30, "not valid for")]
)
async def test_invalid_certificate(
    host: str, days: int, why: str, serve: Serve, make: MakeFetcher, authority: Authority
) -> None:
    server = await serve(reply(response(b"safe")), authority.server(host, days=days))
    with pytest.raises(TLSError, match=why):
        await make(ca_file=authority.file).fetch(Request.to(server.url))
    assert (await make(verify=False).fetch(Request.to(server.url))).body == b"safe"


async def test_https_request_to_http_server(make: MakeFetcher) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TLSError, match=f"handshake with 127.0.0.1:{port}.*plain http"):
            await make().fetch(Request.to(f"https://127.0.0.1:{port}/"))


async def test_http_request_to_https_server(serve: Serve, make: MakeFetcher, authority: Authority) -> None:
    server = await serve(reply(response(b"safe")), authority.server())
    with pytest.raises(NetworkError, match=server.host):
        await make().fetch(Request.to(server.url.replace("https", "http")))


def test_invalid_ca_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read ca_file=.*none\.pem: No such file"):
        HttpFetcher(user_agent="x", ca_file=tmp_path / "none.pem")
    file = tmp_path / "ca.pem"
    file.write_bytes(b"\x30\x82")
    with pytest.raises(ConfigError, match="PEM"):
        HttpFetcher(user_agent="x", ca_file=file)
    file.write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(ConfigError, match=r"Invalid certificate in ca_file=.*ca\.pem: "):
        HttpFetcher(user_agent="x", ca_file=file)


class Http2(asyncio.Protocol):
    """Answers every stream with its path; resets those that ask for it."""

    open: ClassVar[set[asyncio.Transport]] = set()

    def __init__(self) -> None:
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open.add(self._transport)
        self._h2.initiate_connection()
        self._transport.write(self._h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                assert event.headers is not None
                assert event.stream_id is not None
                path = dict(event.headers)[b":path"]
                if path == b"/reset":
                    self._h2.reset_stream(event.stream_id, error_code=2)
                    continue
                length = b"99" if path == b"/short" else str(len(path)).encode()
                head = [(":status", "200"), ("x-a", "1"), ("x-a", "2"), ("content-length", length.decode())]
                self._h2.send_headers(event.stream_id, head)
                self._h2.send_data(event.stream_id, path, end_stream=True)
        self._transport.write(self._h2.data_to_send())


async def test_http2_is_agreed_on_in_the_handshake(make: MakeFetcher, authority: Authority) -> None:
    loop = asyncio.get_running_loop()
    async with await loop.create_server(Http2, "127.0.0.1", 0, ssl=authority.server(alpn=("h2", "http/1.1"))) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        fetcher = make(ca_file=authority.file)
        answers = await asyncio.gather(*(fetcher.fetch(Request.to(f"{url}{n}")) for n in range(20)))
        assert {answer.version for answer in answers} == {"HTTP/2.0"}
        assert [answer.body.decode() for answer in answers] == [f"/{n}" for n in range(20)]
        assert answers[0].headers.get_all("x-a") == ["1", "2"]
        with pytest.raises(NetworkError, match="/reset"):
            await fetcher.fetch(Request.to(url + "reset"))
        with pytest.raises(BadResponse, match="/short"):
            await fetcher.fetch(Request.to(url + "short"))
        for transport in Http2.open:
            transport.abort()
        await asyncio.sleep(0)


async def test_http2_is_not_offered_when_turned_off(serve: Serve, make: MakeFetcher, authority: Authority) -> None:
    server = await serve(reply(response(b"old")), authority.server(alpn=("h2", "http/1.1")))
    answer = await make(ca_file=authority.file, http2=False).fetch(Request.to(server.url))
    assert (answer.version, answer.body) == ("HTTP/1.1", b"old")
