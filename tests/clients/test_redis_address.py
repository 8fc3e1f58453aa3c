"""The forms of an address; what is none is said in words, and what is secret is not."""

from __future__ import annotations

import pytest

from uttu.clients.redis.address import make_clients, parse_options
from uttu.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("redis://[::1]:7000/0", [("::1", 7000)]),
        ("redis://:secret@[fe80::1]/0", [("fe80::1", 6379)]),
        ("redis+cluster://[::1]:7000,b,10.0.0.1:7002", [("::1", 7000), ("b", 6379), ("10.0.0.1", 7002)]),
    ],
)
async def test_ipv6_addresses_are_in_brackets(url: str, hosts: list[tuple[str, int]]) -> None:
    client, _ = make_clients(url)
    if url.startswith("redis+cluster"):
        nodes = client.nodes_manager.startup_nodes.values()  # type: ignore[union-attr]
        assert [(node.host, node.port) for node in nodes] == hosts
    else:
        settings = client.connection_pool.connection_kwargs  # type: ignore[union-attr]
        assert [(settings["host"], settings["port"])] == hosts
    await client.aclose()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis:", "must begin with"),
        ("redis://", "HOST:PORT"),
        ("redis://:secret@", "HOST:PORT"),
        ("redis://:secret@host:port", "HOST:PORT"),
        ("redis://host:99999", "HOST:PORT"),
        ("redis://ho st", "HOST:PORT"),
        ("redis://[::1", "HOST:PORT"),
        ("redis://::1:6379", "HOST:PORT"),
        ("redis://a:1,b:2/0", "redis\\+cluster://"),
        ("redis://:secret@host/shop", "'shop' is not the number of a database"),
        ("redis://host/-1", "not the number of a database"),
        ("redis://host?db=one", "'db'"),
        ("redis://host?colour=blue", "unknown option 'colour'"),
        ("redis://host?decode_responses=yes", "unknown option 'decode_responses'"),
        ("redis://host?ssl_ca_certs=/etc/hostname", "need rediss://"),
        ("rediss://host?ssl_ca_certs=/not/there.pem", "the file /not/there.pem does not exist"),
        ("rediss://host?ssl_check_hostname=perhaps", "'ssl_check_hostname'"),
        ("redis+unix://", "redis\\+unix:///"),
        ("redis+unix://run/redis.sock", "redis\\+unix:///"),
        ("redis+cluster://", "HOST:PORT"),
        ("redis+cluster://a:1/2", "one database only"),
        ("redis+sentinel://:secret@a:1,b:2", "names no service"),
        ("redis+sentinel://a:1/uttu/shop", "not the number of a database"),
        ("redis+pigeon://a", "must begin with"),
    ],
)
def test_nonsense_is_refused_in_words(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refusal:
        make_clients(url)
    assert "secret" not in str(refusal.value)


async def test_options_of_a_backend_are_skipped() -> None:
    url = "redis://me:a?bus=b@host:1/2?bus=news&client_name=c"
    client, _ = make_clients(url, ("bus",))
    assert parse_options(url) == [("bus", "news"), ("client_name", "c")]
    assert client.connection_pool.connection_kwargs["password"] == "a?bus=b"  # type: ignore[union-attr]
    await client.aclose()
    with pytest.raises(ConfigError, match="unknown option 'bus'"):
        make_clients(url)
    with pytest.raises(ConfigError, match="unknown option 'bos'; the options are bus, client_name"):
        make_clients("redis://host?bos=news", ("bus",))
