from __future__ import annotations

import pytest
from pyreqwest.exceptions import ConnectError, PyreqwestError, ReadError, RequestError, RequestPanicError

from weft.errors import BadResponse, FetchError, NetworkError, TLSError, UnknownHost
from weft.fetch.http_errors import Timeouts, explain
from weft.model import Request

CONNECT = "client error (Connect)"
LOOKUP = "failed to lookup address information: Name or service not known"


def explained(kind: type[RequestError], *causes: str, proxy: str = "") -> FetchError:
    error = kind("something", {"causes": [{"message": cause} for cause in causes]})
    return explain(error, Request.to("http://site.example/page"), proxy, 1.0, Timeouts(30, 10, 15))


@pytest.mark.parametrize(
    ("causes", "proxy", "expected", "message"),
    [
        ((CONNECT, "dns error", LOOKUP), "", UnknownHost, "the name site.example does not resolve"),
        ((CONNECT, "dns error", LOOKUP), "socks5://p.example:1", UnknownHost, "the name site.example does not"),
        ((CONNECT, "dns error", LOOKUP), "http://p.example:1", NetworkError, "the name p.example does not resolve"),
        (
            (CONNECT, "dns error", "failed to lookup address information: Temporary failure in name resolution"),
            "",
            NetworkError,
            "can't be looked up at the moment",
        ),
        ((CONNECT, "received fatal alert: HandshakeFailure"), "", TLSError, "no TLS handshake with site.example"),
        ((CONNECT, "tcp connect error", "No route to host (os error 113)"), "", NetworkError, "can't be reached"),
        (("http2 error", "stream error received: refused stream"), "", NetworkError, "refused stream"),
    ],
)
def test_causes_decide(causes: tuple[str, ...], proxy: str, expected: type[FetchError], message: str) -> None:
    error = explained(ConnectError, *causes, proxy=proxy)
    assert type(error) is expected
    assert str(error).startswith("http://site.example/page")
    assert message in str(error)


def test_a_decompressors_end_of_file_is_not_the_hosts() -> None:
    wrappers = ("error decoding response body", "request or response body error")
    assert type(explained(ReadError, *wrappers, "reached unexpected EOF")) is BadResponse
    reading = (*wrappers, "error reading a body from connection", "unexpected EOF during chunk size line")
    assert type(explained(ReadError, *reading)) is NetworkError


def test_errors_that_say_nothing() -> None:
    assert type(explained(RequestError)) is NetworkError
    assert type(explained(RequestPanicError)) is FetchError
    bare = explain(PyreqwestError("odd"), Request.to("http://a.example/"), "", 1.0, Timeouts(30, 10, 15))
    assert type(bare) is NetworkError
    assert "odd" in str(bare)
