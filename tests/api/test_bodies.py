"""Requests that are too large, malformed or slow, sent over plain sockets."""

from __future__ import annotations

import socket
import time

import pytest

from tests.api.running import Dashboard
from uttu.api import endpoints, server

RATE = "/api/v1/crawls/local/shop:rate"


def exchange(dashboard: Dashboard, *parts: bytes, pause: float = 0.0) -> bytes:
    """Send parts, with a pause after each, and return everything that comes back."""
    with dashboard.connect() as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except OSError:
            pass  # the server has had enough
        received = b""
        try:
            while chunk := connection.recv(65536):
                received += chunk
        except OSError:
            pass
        return received


def head(path: str = RATE, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def test_a_body_that_is_too_large(dashboard: Dashboard) -> None:
    assert b" 413 " in exchange(dashboard, head(RATE, "Content-Length: 9000000")).partition(b"\r\n")[0]
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    assert b" 413 " in exchange(dashboard, head(RATE, "Transfer-Encoding: chunked"), *[chunk] * 20)


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'{"host":' + b"[" * 100_000, "application/json", 422),
        (b'{"host":"a.example","delay":1}', "text/plain", 403),
        (b'{"host":"a.example","delay":"fast"}', "application/json", 422),
        (b'{"host":"a.example","delay":-1}', "application/json", 422),
        (b'{"host":"a.example","speed":1}', "application/json", 422),
        (b"[]", "application/json", 422),
        (b"", "application/json", 422),
        (b'{"host":""}', "application/json", 422),
        (b'{"host":"no host"}', "application/json", 422),
    ],
)
def test_malformed_bodies(dashboard: Dashboard, body: bytes, kind: str, status: int) -> None:
    answer = dashboard.ask("POST", RATE, body, {"Content-Type": kind})
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == status
    assert answer.json["detail"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/crawls/local/shop/lanes?limit=0", 422),
        ("/api/v1/crawls/local/shop/lanes?limit=99999", 422),
        ("/api/v1/crawls/local/shop/lanes?limit=x", 422),
        ("/api/v1/crawls/local/shop/lanes?only=nonsense", 422),
        ("/api/v1/crawls/local/shop/lanes?after=nonsense", 422),
        ("/api/v1/crawls/local/shop/lanes?limit=1&limit=2", 422),
        ("/api/v1/crawls/local/shop/lanes?store=other", 422),
        ("/api/v1/crawls/local/shop/requests", 422),
        ("/api/v1/crawls/local/shop/requests?url=ftp:x", 422),
        ("/api/v1/crawls/none/shop", 404),
        ("/api/v1/crawls/local/none", 404),
        ("/api/v1/crawls/local/shop.py", 404),
        ("/api/v1/buses/none/groups", 404),
        ("/api/v1/nothing", 404),
        ("/api/v1/crawls/local/shop:pause", 404),
        ("/api/v1/session:start", 405),
    ],
)
def test_wrong_parameters(dashboard: Dashboard, path: str, status: int) -> None:
    answer = dashboard.get(path)
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["detail"]


def test_what_is_not_http(dashboard: Dashboard) -> None:
    for sent in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"\0" * 100 + b"\r\n\r\n"):
        assert b" 400 " in exchange(dashboard, sent).partition(b"\r\n")[0]
    assert b" 400 " in exchange(dashboard, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000)
    assert dashboard.get("/healthz").status == 200


def test_a_body_that_is_too_slow(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "BODY_SECONDS", 0.5)
    began = time.monotonic()
    received = exchange(dashboard, head(RATE, "Content-Length: 100"), b"{")
    assert b" 408 " in received.partition(b"\r\n")[0]
    assert time.monotonic() - began < 5


def test_a_head_that_is_too_slow(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_HEAD_SECONDS", 0.5)
    began = time.monotonic()
    assert exchange(dashboard) == b""
    assert exchange(dashboard, b"GET / HTTP/1.1\r\n", *[b"X: y\r\n"] * 20, pause=0.1) == b""
    # Also the second request of a connection.
    first = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert exchange(dashboard, first, b"GET / HT", pause=0.1).count(b"HTTP/1.1 ") == 1
    assert time.monotonic() - began < 10


def test_many_clients_that_send_nothing(dashboard: Dashboard) -> None:
    idle = [dashboard.connect() for _ in range(200)]
    try:
        began = time.monotonic()
        assert dashboard.get("/healthz").status == 200
        assert time.monotonic() - began < 1
    finally:
        for each in idle:
            each.close()


def test_a_client_that_resets(dashboard: Dashboard) -> None:
    for _ in range(20):
        connection = dashboard.connect()
        connection.sendall(head(RATE, "Content-Length: 100"))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
    assert dashboard.get("/healthz").status == 200
