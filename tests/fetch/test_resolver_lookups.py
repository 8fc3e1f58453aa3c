from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from uttu.fetch import resolver
from uttu.fetch.resolver import look_up_addresses


class Names:
    """A name server that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()

    def look_up(self, name: str, *_: object, **__: object) -> list[object]:
        self.asked.append(name)
        self.answers.wait(20)
        if name.startswith("no"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (address, 0)) for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1")]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
    yield names
    names.answers.set()


async def asking(*wanted: str) -> list[asyncio.Task[list[str]]]:
    tasks = [asyncio.create_task(look_up_addresses(name)) for name in wanted]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "2001:db8::1"])
async def test_ip_address_resolves_to_itself(address: str) -> None:
    assert await look_up_addresses(address) == [address]


async def test_concurrent_lookups_share_the_result(names: Names) -> None:
    tasks = await asking("a.example", "a.example", "b.example")
    names.answers.set()
    assert await asyncio.gather(*tasks) == [["192.0.2.1", "192.0.2.2"]] * 3
    assert sorted(names.asked) == ["a.example", "b.example"]
    await look_up_addresses("a.example")
    assert sorted(names.asked) == ["a.example", "a.example", "b.example"]


async def test_cancelled_lookup_does_not_affect_others(names: Names) -> None:
    first, second = await asking("a.example", "a.example")
    first.cancel()
    await asyncio.wait([first])
    names.answers.set()
    assert await second == ["192.0.2.1", "192.0.2.2"]
    assert names.asked == ["a.example"]


async def test_failed_lookups_are_not_cached(names: Names) -> None:
    names.answers.set()
    for _ in range(2):
        with pytest.raises(socket.gaierror, match="not known"):
            await look_up_addresses("no.example")
    assert names.asked == ["no.example"] * 2


async def test_lookups_at_once_are_bounded(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "_MAX_LOOKUPS", 3)
    tasks = await asking(*(f"{name}.example" for name in "abc"))
    with pytest.raises(socket.gaierror) as caught:
        await look_up_addresses("d.example")
    assert caught.value.errno == socket.EAI_AGAIN
    names.answers.set()
    await asyncio.gather(*tasks)
    assert await look_up_addresses("d.example")


def test_exit_does_not_wait_for_lookups() -> None:
    code = """
import asyncio, socket, time
from uttu.fetch.resolver import look_up_addresses
socket.getaddrinfo = lambda *_, **__: time.sleep(1000)
try:
    asyncio.run(asyncio.wait_for(look_up_addresses("a.example"), 0.1))
except TimeoutError:
    print("over")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "over\n"
