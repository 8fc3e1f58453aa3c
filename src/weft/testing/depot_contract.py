"""The depot's contract as tests: what :mod:`weft.frontier.depot` says in prose.

A backend passes by inheriting :class:`DepotContract` and supplying two fixtures: ``depot``, with nothing in it
under ``crawl``, a name for a crawl. Tests are coroutines, as in :mod:`weft.testing.frontier_contract`.
"""

from __future__ import annotations

import pytest

from weft.errors import ConfigError, StoreError, WeftError
from weft.frontier.base import Rules
from weft.frontier.depot import Depot, Store
from weft.model import Request

URLS = [f"https://a.example/{number}" for number in range(3)]


async def _fill(store: Store, urls: list[str]) -> None:
    await store.frontier.put([Request(url=url) for url in urls])
    await store.ledger.note(urls=" ".join(urls))
    await store.frontier.close()


async def _facts(depot: Depot, crawl: str) -> tuple[str, int]:
    """What :func:`_fill` has noted, and how many requests there are."""
    store = await depot.open(crawl, Rules())
    try:
        return (await store.ledger.facts()).get("urls", ""), (await store.frontier.counts()).pending
    finally:
        await store.frontier.close()


class DepotContract:
    """One crawl per name; a crawl is replaced by one that has begun; one supervisor at a time."""

    async def test_a_crawl_that_is_not_there_is_not_opened_and_not_made(self, depot: Depot, crawl: str) -> None:
        with pytest.raises(StoreError):
            await depot.open(crawl, Rules())
        assert crawl not in await depot.names()
        await depot.keep(crawl)
        await depot.restore(crawl)
        assert crawl not in await depot.names()

    async def test_a_crawl_is_there_once_it_was_made(self, depot: Depot, crawl: str) -> None:
        await _fill(await depot.create(crawl, Rules()), URLS)
        assert (await depot.names()).count(crawl) == 1
        assert await _facts(depot, crawl) == (" ".join(URLS), 3)

    async def test_closing_one_store_leaves_others_alone(self, depot: Depot, crawl: str) -> None:
        first = await depot.create(crawl, Rules())
        second = await depot.open(crawl, Rules())
        await first.frontier.close()
        await _fill(second, URLS)
        assert await _facts(depot, crawl) == (" ".join(URLS), 3)

    async def test_a_crawl_that_is_made_again_is_empty(self, depot: Depot, crawl: str) -> None:
        await _fill(await depot.create(crawl, Rules()), URLS)
        await (await depot.create(crawl, Rules())).frontier.close()
        assert await _facts(depot, crawl) == ("", 0)
        assert (await depot.names()).count(crawl) == 1

    async def test_the_former_crawl_is_put_back_if_the_new_one_could_not_begin(self, depot: Depot, crawl: str) -> None:
        await _fill(await depot.create(crawl, Rules()), URLS)
        await depot.keep(crawl)
        await _fill(await depot.create(crawl, Rules()), URLS[:1])
        await depot.restore(crawl)
        assert await _facts(depot, crawl) == (" ".join(URLS), 3)

    async def test_once_the_new_crawl_has_begun_the_former_one_is_gone(self, depot: Depot, crawl: str) -> None:
        await _fill(await depot.create(crawl, Rules()), URLS)
        await depot.keep(crawl)
        await _fill(await depot.create(crawl, Rules()), URLS[:1])
        for _ in range(2):
            await depot.keep(crawl)
            await depot.restore(crawl)
            assert await _facts(depot, crawl) == (URLS[0], 1)

    @pytest.mark.parametrize("name", ["", "../mine", "a/b", "/mine", ".hidden", "..", "a b", "{", "a{b}c", "a\\b"])
    async def test_what_is_no_name_is_neither_made_nor_supervised(self, depot: Depot, name: str) -> None:
        before = sorted(await depot.names())
        with pytest.raises(ConfigError, match="made of letters, digits"):
            await depot.create(name, Rules())
        with pytest.raises(ConfigError, match="made of letters, digits"):
            async with depot.supervise(name):
                pass
        with pytest.raises(WeftError):
            await depot.open(name, Rules())
        assert sorted(await depot.names()) == before

    async def test_a_crawl_has_one_supervisor(self, depot: Depot, crawl: str) -> None:
        assert not await depot.is_supervised(crawl)
        async with depot.supervise(crawl):
            assert await depot.is_supervised(crawl)
            assert not await depot.is_supervised(crawl + "2")
            with pytest.raises(WeftError, match="running already"):
                async with depot.supervise(crawl):
                    pass
            assert await depot.is_supervised(crawl)
        assert not await depot.is_supervised(crawl)
        async with depot.supervise(crawl):
            assert await depot.is_supervised(crawl)
