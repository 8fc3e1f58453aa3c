"""Names that lead into private networks are refused by every worker, unless the crawl started there."""

from __future__ import annotations

import socket

import pytest

from uttu.errors import PrivateHost
from uttu.fetch import resolver
from uttu.fetch.resolver import GuardedResolver
from uttu.testing.clock import FakeClock

PUBLIC, OTHER_PUBLIC = "93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"


class NameServer:
    """Knows these names, and writes down what it is asked for."""

    def __init__(self, **found: list[str] | Exception) -> None:
        self.found = {f"{name}.example": answer for name, answer in found.items()}
        self.asked: list[str] = []

    async def addresses_of(self, name: str) -> list[str]:
        self.asked.append(name)
        answer = self.found[name]
        if isinstance(answer, Exception):
            raise answer
        return answer


class MemoryMemo:
    """The contract in its smallest form."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def recall(self, key: str) -> bytes | None:
        return self.kept.get(key)

    async def remember(self, key: str, value: bytes, seconds: float) -> None:
        self.kept[key] = value


def private(memo: MemoryMemo, *start_hosts: str) -> GuardedResolver:
    return GuardedResolver(frozenset(start_hosts), memo, FakeClock())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> NameServer:
    server = NameServer(
        public=[PUBLIC, OTHER_PUBLIC],
        loopback=["127.0.0.1"],
        router=["192.168.0.1"],
        cloud=["169.254.169.254"],
        sixth=["::1"],
        mapped=["::ffff:10.0.0.1"],
        scoped=["fe80::1%eth0"],
        mixed=[PUBLIC, OTHER_PUBLIC, "10.0.0.7"],
        nobody=socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        unspeakable=UnicodeError("label too long"),
    )
    monkeypatch.setattr(resolver, "look_up_addresses", server.addresses_of)
    return server


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("loopback.example", "127.0.0.1"),
        ("router.example", "192.168.0.1"),
        ("cloud.example", "169.254.169.254"),
        ("sixth.example", "::1"),
        ("mapped.example", "::ffff:10.0.0.1"),
        ("scoped.example", "fe80::1%eth0"),
        ("mixed.example", "10.0.0.7"),
    ],
)
@pytest.mark.parametrize("port", ["", ":8080"])
async def test_name_with_private_address(server: NameServer, name: str, address: str, port: str) -> None:
    refused = await private(MemoryMemo()).refuse(name + port)
    assert refused == f"{name} resolves to the private address {address}"
    assert server.asked == [name]


@pytest.mark.parametrize("name", ["public.example", "nobody.example", "unspeakable.example"])
async def test_public_and_unknown_names(server: NameServer, name: str) -> None:
    """What does not resolve is the fetcher's to report."""
    assert await private(MemoryMemo()).refuse(name) is None
    assert server.asked == [name]


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1:8080", "[::1]", "[::1]:8080"])
async def test_ip_addresses_are_left_to_the_scope(server: NameServer, host: str) -> None:
    assert await private(MemoryMemo()).refuse(host) is None
    assert server.asked == []


async def test_private_start_host_includes_its_port(server: NameServer) -> None:
    private_names = private(MemoryMemo(), "router.example:8080")
    assert await private_names.refuse("router.example:8080") is None
    assert server.asked == []
    assert await private_names.refuse("router.example") is not None


@pytest.mark.parametrize("name", ["router.example", "public.example", "nobody.example"])
async def test_lookup_is_cached_for_five_minutes(server: NameServer, name: str) -> None:
    clock = FakeClock()
    private_names = GuardedResolver(frozenset(), MemoryMemo(), clock)
    first = await private_names.refuse(name)
    clock.advance(299.875)
    assert await private_names.refuse(name) == first
    assert server.asked == [name]
    server.found[name] = [PUBLIC] if first else ["127.0.0.1"]
    clock.advance(0.125)
    assert (await private_names.refuse(name) is None) is (first is not None)
    assert server.asked == [name, name]


async def test_cached_lookups_are_bounded(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "_MAX_CACHED", 2)
    private_names = private(MemoryMemo())
    for name in ("public.example", "router.example", "cloud.example", "public.example", "cloud.example"):
        await private_names.refuse(name)
    assert server.asked == ["public.example", "router.example", "cloud.example", "public.example"]


async def test_a_start_url_opens_its_host_to_all_workers(server: NameServer) -> None:
    memo = MemoryMemo()
    one, other = private(memo), private(memo)
    # Each has its verdict, and would keep it for minutes.
    assert await one.refuse("router.example")
    assert await other.refuse("router.example")
    assert await one.refuse("router.example", start=True) is None
    assert await one.refuse("router.example") is None
    assert await other.refuse("router.example") is None
    assert await other.refuse("router.example:8080") is not None


async def test_only_private_hosts_are_stored_in_the_memo(server: NameServer) -> None:
    memo = MemoryMemo()
    assert await private(memo).refuse("public.example", start=True) is None
    assert memo.kept == {}


async def test_resolve_returns_the_checked_addresses(server: NameServer) -> None:
    """One lookup for both: an answer that changes in between (DNS rebinding) is not seen."""
    private_names = private(MemoryMemo())
    assert await private_names.refuse("public.example:8080") is None
    server.found["public.example"] = ["127.0.0.1"]
    assert await private_names.resolve("public.example:8080", "public.example") == [PUBLIC, OTHER_PUBLIC]
    assert server.asked == ["public.example"]


async def test_unchecked_host_is_checked_by_resolve(server: NameServer) -> None:
    """Its verdict was forgotten meanwhile, or a middleware changed the URL."""
    private_names = private(MemoryMemo())
    assert await private_names.resolve("public.example", "public.example") == [PUBLIC, OTHER_PUBLIC]
    for name in ("router.example", "mixed.example", "mapped.example"):
        with pytest.raises(PrivateHost, match=f"{name} resolves to the private address"):
            await private_names.resolve(name, name)


async def test_lookup_that_expires_during_a_fetch(server: NameServer) -> None:
    clock = FakeClock()
    private_names = GuardedResolver(frozenset(), MemoryMemo(), clock)
    assert await private_names.refuse("public.example") is None
    server.found["public.example"] = ["10.0.0.1"]
    clock.advance(301)
    with pytest.raises(PrivateHost, match=r"resolves to the private address 10\.0\.0\.1"):
        await private_names.resolve("public.example", "public.example")


async def test_private_start_host_is_resolved(server: NameServer) -> None:
    memo = MemoryMemo()
    one, other = private(memo), private(memo, "cloud.example")
    assert await one.refuse("router.example", start=True) is None
    for private_names in (one, other):
        assert await private_names.resolve("router.example", "router.example") == ["192.168.0.1"]
    assert server.asked == ["router.example", "router.example"]
    assert await other.resolve("cloud.example", "cloud.example") == ["169.254.169.254"]


@pytest.mark.parametrize("name", ["nobody.example", "unspeakable.example"])
async def test_failed_lookup_is_repeated_per_try(server: NameServer, name: str) -> None:
    private_names = private(MemoryMemo())
    for tries in (1, 2):
        assert await private_names.refuse(name) is None
        with pytest.raises((socket.gaierror, UnicodeError)):
            await private_names.resolve(name, name)
        assert server.asked == [name] * tries
    server.found[name] = [PUBLIC]
    assert await private_names.resolve(name, name) == [PUBLIC]
    server.found[name] = ["127.0.0.1"]
    assert await private_names.resolve(name, name) == [PUBLIC]


async def test_ip_address_is_not_looked_up(server: NameServer) -> None:
    server.found["::1"] = ["::1"]
    assert await private(MemoryMemo()).resolve("[::1]:8080", "::1") == ["::1"]
