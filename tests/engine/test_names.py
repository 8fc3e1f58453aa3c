"""Names that lead into private networks: refused by every worker, unless the crawl started there."""

from __future__ import annotations

import socket

import pytest

from weft.engine import names as module
from weft.engine.names import PrivateNames
from weft.testing.clock import FakeClock

ADDRESSES = {"inside.example": ["93.184.216.34", "10.0.0.5"], "outside.example": ["93.184.216.34"]}


class MemoryMemo:
    """The contract in its smallest form."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def recall(self, key: str) -> bytes | None:
        return self.kept.get(key)

    async def remember(self, key: str, value: bytes, seconds: float) -> None:
        self.kept[key] = value


@pytest.fixture(autouse=True)
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were looked up."""
    found: list[str] = []

    async def addresses_of(name: str) -> list[str]:
        found.append(name)
        try:
            return ADDRESSES[name]
        except KeyError:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None

    monkeypatch.setattr(module, "addresses_of", addresses_of)
    return found


def names(memo: MemoryMemo | None = None, *start_hosts: str, clock: FakeClock | None = None) -> PrivateNames:
    return PrivateNames(frozenset(start_hosts), memo or MemoryMemo(), clock or FakeClock())


async def test_a_name_is_judged_by_all_its_addresses(looked_up: list[str]) -> None:
    it = names()
    for _ in range(2):
        assert await it.refuse("inside.example:8080") == "inside.example leads to the private address 10.0.0.5"
        assert await it.refuse("outside.example") is None
        assert await it.refuse("nowhere.example") is None
    assert looked_up == ["inside.example", "outside.example", "nowhere.example"]


async def test_addresses_are_the_scope_s_affair(looked_up: list[str]) -> None:
    assert await names().refuse("127.0.0.1:80") is None
    assert await names().refuse("[::1]") is None
    assert looked_up == []


async def test_a_verdict_does_not_last(looked_up: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    it = names(clock=clock)
    assert await it.refuse("outside.example") is None
    monkeypatch.setitem(ADDRESSES, "outside.example", ["127.0.0.1"])
    assert await it.refuse("outside.example") is None
    clock.advance(301)
    assert await it.refuse("outside.example") is not None


async def test_where_the_crawl_started_is_not_looked_up(looked_up: list[str]) -> None:
    assert await names(None, "inside.example").refuse("inside.example") is None
    assert looked_up == []


async def test_a_start_url_opens_its_host_to_all_workers() -> None:
    memo = MemoryMemo()
    one, other = names(memo), names(memo)
    # Each has its verdict, and would keep it for minutes.
    assert await one.refuse("inside.example")
    assert await other.refuse("inside.example")
    assert await one.refuse("inside.example", start=True) is None
    assert await one.refuse("inside.example") is None
    assert await other.refuse("inside.example") is None
    assert await other.refuse("inside.example:8080") is not None


async def test_only_private_hosts_cost_a_note() -> None:
    memo = MemoryMemo()
    assert await names(memo).refuse("outside.example", start=True) is None
    assert memo.kept == {}
