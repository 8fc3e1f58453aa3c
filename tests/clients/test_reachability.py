"""Whether a server refuses connections."""

from __future__ import annotations

import socket

import pytest

from uttu.clients.reachability import find_places, find_refusal


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("redis://localhost:6379/0", [("localhost", 6379)]),
        ("redis://me:s3c?r/e@t@h/0?db=1", [("h", 6379)]),
        ("redis://:6000?x@h", [("h", 6379)]),
        ("rediss+cluster://a:1,b", [("a", 1), ("b", 6379)]),
        ("redis+sentinel://a,b:7/x?sentinel_password=1", [("a", 26379), ("b", 7)]),
        ("amqp://u:p@h/v?management=http://a:b@m", [("h", 5672)]),
        ("amqps://h1,h2:99", [("h1", 5671), ("h2", 99)]),
        ("kafka://[::1]:9093,h?partitions=3", [("::1", 9093), ("h", 9092)]),
        ("kafka://", [("localhost", 9092)]),
        ("redis+unix:///run/redis.sock", []),
        ("sqlite:.", []),
        ("other://h:1", []),
    ],
)
def test_places(url: str, places: list[tuple[str, int]]) -> None:
    assert find_places(url) == places


async def test_a_refusal_needs_all_places() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        there, away = (f"127.0.0.1:{each.getsockname()[1]}" for each in (listening, closed))
        assert await find_refusal(f"kafka://{away}") == f"{away}: Connection refused"
        assert await find_refusal(f"kafka://{there}") == ""
        assert await find_refusal(f"kafka://{away},{there}") == ""
        assert await find_refusal("sqlite:.") == ""
        assert await find_refusal("kafka://127.0.0.1:99999") == ""
