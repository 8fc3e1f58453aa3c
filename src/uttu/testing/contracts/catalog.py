"""The catalog contract as tests; :mod:`uttu.frontier.catalog` has it in prose.

A backend inherits :class:`CatalogContract` and supplies two fixtures: ``crawl``, the name of a crawl, and ``catalog``,
which has no crawl of that name. Tests are coroutines, as in :mod:`uttu.testing.contracts.frontier`.
"""

from __future__ import annotations

import pytest

from uttu.errors import ConfigError, StoreError, UttuError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlCatalog, CrawlStore
from uttu.model import Request

URLS = [f"https://a.example/{number}" for number in range(3)]


async def _fill(store: CrawlStore, urls: list[str]) -> None:
    await store.frontier.put([Request(url=url) for url in urls])
    await store.ledger.note(outputs=tuple(urls))
    await store.frontier.close()


async def _facts(catalog: CrawlCatalog, crawl: str) -> tuple[list[str], int]:
    """Return the fact that :func:`_fill` noted, and the number of requests."""
    store = await catalog.open(crawl, Rules())
    try:
        return list((await store.ledger.facts()).outputs), (await store.frontier.counts()).pending
    finally:
        await store.frontier.close()


class CatalogContract:
    """One crawl per name; a new crawl replaces it once it has begun; one supervisor at a time."""

    async def test_a_crawl_that_is_not_there_is_not_opened_and_not_made(
        self, catalog: CrawlCatalog, crawl: str
    ) -> None:
        with pytest.raises(StoreError):
            await catalog.open(crawl, Rules())
        assert crawl not in await catalog.names()
        await catalog.keep(crawl)
        await catalog.restore(crawl)
        assert crawl not in await catalog.names()

    async def test_a_crawl_is_there_once_it_was_made(self, catalog: CrawlCatalog, crawl: str) -> None:
        await _fill(await catalog.create(crawl, Rules()), URLS)
        assert (await catalog.names()).count(crawl) == 1
        assert await _facts(catalog, crawl) == (URLS, 3)

    async def test_closing_one_store_leaves_others_alone(self, catalog: CrawlCatalog, crawl: str) -> None:
        first = await catalog.create(crawl, Rules())
        second = await catalog.open(crawl, Rules())
        await first.frontier.close()
        await _fill(second, URLS)
        assert await _facts(catalog, crawl) == (URLS, 3)

    async def test_a_crawl_that_is_made_again_is_empty(self, catalog: CrawlCatalog, crawl: str) -> None:
        await _fill(await catalog.create(crawl, Rules()), URLS)
        await (await catalog.create(crawl, Rules())).frontier.close()
        assert await _facts(catalog, crawl) == ([], 0)
        assert (await catalog.names()).count(crawl) == 1

    async def test_the_former_crawl_is_put_back_if_the_new_one_could_not_begin(
        self, catalog: CrawlCatalog, crawl: str
    ) -> None:
        await _fill(await catalog.create(crawl, Rules()), URLS)
        await catalog.keep(crawl)
        await _fill(await catalog.create(crawl, Rules()), URLS[:1])
        await catalog.restore(crawl)
        assert await _facts(catalog, crawl) == (URLS, 3)

    async def test_a_new_crawl_that_is_discarded_leaves_nothing(self, catalog: CrawlCatalog, crawl: str) -> None:
        await _fill(await catalog.create(crawl, Rules()), URLS)
        await catalog.discard(crawl)
        assert crawl not in await catalog.names()
        with pytest.raises(StoreError):
            await catalog.open(crawl, Rules())
        await _fill(await catalog.create(crawl, Rules()), URLS[:1])
        assert await _facts(catalog, crawl) == (URLS[:1], 1)

    async def test_discarding_puts_the_former_crawl_back(self, catalog: CrawlCatalog, crawl: str) -> None:
        await _fill(await catalog.create(crawl, Rules()), URLS)
        await catalog.keep(crawl)
        await _fill(await catalog.create(crawl, Rules()), URLS[:1])
        await catalog.discard(crawl)
        assert await _facts(catalog, crawl) == (URLS, 3)

    async def test_once_the_new_crawl_has_begun_the_former_one_is_gone(self, catalog: CrawlCatalog, crawl: str) -> None:
        await _fill(await catalog.create(crawl, Rules()), URLS)
        await catalog.keep(crawl)
        await _fill(await catalog.create(crawl, Rules()), URLS[:1])
        for _ in range(2):
            await catalog.keep(crawl)
            await catalog.restore(crawl)
            assert await _facts(catalog, crawl) == (URLS[:1], 1)

    @pytest.mark.parametrize("name", ["", "../mine", "a/b", "/mine", ".hidden", "..", "a b", "{", "a{b}c", "a\\b"])
    async def test_what_is_no_name_is_neither_made_nor_supervised(self, catalog: CrawlCatalog, name: str) -> None:
        before = sorted(await catalog.names())
        with pytest.raises(ConfigError, match="Invalid crawl name"):
            await catalog.create(name, Rules())
        with pytest.raises(ConfigError, match="Invalid crawl name"):
            async with catalog.supervise(name):
                pass
        with pytest.raises(UttuError):
            await catalog.open(name, Rules())
        assert sorted(await catalog.names()) == before

    async def test_a_crawl_has_one_supervisor(self, catalog: CrawlCatalog, crawl: str) -> None:
        assert not await catalog.is_supervised(crawl)
        async with catalog.supervise(crawl):
            assert await catalog.is_supervised(crawl)
            assert not await catalog.is_supervised(crawl + "2")
            with pytest.raises(UttuError, match="running already"):
                async with catalog.supervise(crawl):
                    pass
            assert await catalog.is_supervised(crawl)
        assert not await catalog.is_supervised(crawl)
        async with catalog.supervise(crawl):
            assert await catalog.is_supervised(crawl)
