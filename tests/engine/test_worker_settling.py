"""A page whose outcome the store does not take is dead; the others of its batch are settled as they are."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import msgspec
import pytest

from tests.engine.workers import worker_on
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlStore
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.frontier.sqlite.catalog import SqliteCatalog
from uttu.model import Done, Lease, Outcome, Pace, Request
from uttu.testing.contracts.store import list_dead

RULES = Rules(pace=Pace(0, 0))
URLS = [f"http://example.org/{number}" for number in range(5)]


async def settled(store: CrawlStore, bad: Done | None = None, raised: BaseException | None = None) -> dict[str, str]:
    """Visit all pages; the second one ends so. Returns the dead, and why."""
    await store.frontier.put([Request(url=url) for url in URLS])

    async def visit(lease: Lease) -> Outcome:
        if lease.request.url == URLS[1]:
            if raised is not None:
                raise raised
            assert bad is not None
            return msgspec.structs.replace(bad, lease=lease)
        return Done(lease=lease, items=(b"{}",))

    async def is_over() -> bool:
        return (await store.frontier.counts()).finished

    await asyncio.wait_for(worker_on(store.frontier, visit, is_over).run(), 20)
    counts = await store.frontier.counts()
    assert (counts.done, counts.dead, counts.items) == (4, 1, 4)
    return {letter.request.url: letter.reason for letter in await list_dead(store.inspector)}


ANY = Lease(id=1, fingerprint=1, lane="", request=Request(url=URLS[0]), attempt=1, wait=0, deadline=0)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Done(lease=ANY, note="\udc80"), "can't be stored: UnicodeEncodeError"),
        (Done(lease=ANY, items=(b"\xff",)), "can't be stored: UnicodeDecodeError"),
        (Done(lease=ANY, children=(Request.from_canonical("http://\udc80/"),)), "can't be stored: UnicodeEncodeError"),
        (Done(lease=ANY, children=(Request.from_canonical("no address"),)), "can't be stored: ValueError"),
        (Done(lease=ANY, children=(Request(url=URLS[0] + "x", priority="high"),)), "can't be stored: TypeError"),  # type: ignore[arg-type]
    ],
)
async def test_an_outcome_that_the_store_refuses(tmp_path: Path, bad: Done, reason: str) -> None:
    assert reason in await refusal(tmp_path, bad)


async def test_an_outcome_that_is_too_big(tmp_path: Path) -> None:
    # Not a parameter of the test above: those live as long as the tests, and this one is a gigabyte.
    bad = Done(lease=ANY, items=(b'"' + b"x" * 1_000_000_001 + b'"',))
    assert "too big" in await refusal(tmp_path, bad)


async def refusal(folder: Path, bad: Done) -> str:
    store = await SqliteCatalog(folder).create("crawl", Rules(pace=Pace(0, 0), order="priority"))
    try:
        return (await settled(store, bad))[URLS[1]]
    finally:
        await store.frontier.close()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Done(lease=ANY, note="\udc80"), "can't be stored: UnicodeEncodeError"),
        (Done(lease=ANY, items=(b"\xff",)), "can't be stored: UnicodeDecodeError"),
        (Done(lease=ANY, status=10**30), "can't be stored: OverflowError"),
    ],
)
async def test_an_outcome_that_redis_refuses(redis_url: str, bad: Done, reason: str) -> None:
    catalog = await RedisCatalog.connect(redis_url)
    store = await catalog.create(f"crawl-{secrets.token_hex(4)}", RULES)
    try:
        assert reason in (await settled(store, bad))[URLS[1]]
    finally:
        await store.frontier.close()
        await catalog.close()


class Own(BaseException):
    pass


@pytest.mark.parametrize("raised", [Own("no"), GeneratorExit(), SystemExit(3), asyncio.CancelledError()])
async def test_a_visit_that_raises_whatever_it_likes(tmp_path: Path, raised: BaseException) -> None:
    store = await SqliteCatalog(tmp_path).create("crawl", RULES)
    try:
        assert type(raised).__name__ in (await settled(store, raised=raised))[URLS[1]]
    finally:
        await store.frontier.close()
