"""The contract of a catalog: all crawls in one place, which is a folder of SQLite files or a Redis server.

A catalog has one crawl per name. ``create`` sets an existing crawl of that name aside. When the new crawl has begun,
``keep`` drops the former one. If the new crawl cannot begin, ``restore`` brings the former one back.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from uttu.frontier.base import Frontier, History, Inspector, Ledger, Memo, Outbox, Rules, SeedQueue
from uttu.frontier.transfer import CrawlTransfer


class CrawlStore(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one crawl, in all its roles. Closing the frontier closes all of them."""

    frontier: Frontier
    outbox: Outbox
    memo: Memo
    ledger: Ledger
    inspector: Inspector
    history: History
    transfer: CrawlTransfer
    feed: SeedQueue | None = None
    """None if other programs cannot push seeds to this store."""


class CrawlCatalog(Protocol):
    """All crawls in one place.

    All methods may raise ``StoreError``. Methods that create or open a crawl raise ``ConfigError`` if its name is
    invalid (:func:`uttu.model.crawl.is_crawl_name`).
    """

    @property
    def address(self) -> str:
        """The value of ``--frontier``, with the password masked; empty for the current folder."""

    @property
    def shared(self) -> bool:
        """Whether workers on other machines can take part.

        If not, workers exist only under a supervisor: a crawl without one has no live workers.
        """

    async def names(self) -> list[str]:
        """Return the names of all crawls, in no particular order."""

    async def open(self, crawl: str, rules: Rules) -> CrawlStore:
        """:raises StoreError: no crawl has this name, or it cannot be used."""

    async def create(self, crawl: str, rules: Rules) -> CrawlStore:
        """Create a new, empty crawl and set an existing crawl of this name aside."""

    async def keep(self, crawl: str) -> None:
        """Drop the former crawl, if one was set aside: the new one has begun."""

    async def restore(self, crawl: str) -> None:
        """Drop the new crawl and bring the former one back. Does nothing if none was set aside."""

    async def discard(self, crawl: str) -> None:
        """As :meth:`restore`, but drop the new crawl even if no former one was set aside."""

    def supervise(self, crawl: str) -> AbstractAsyncContextManager[None]:
        """Hold the role of the crawl's only supervisor during the block. The crawl need not exist yet.

        :raises UttuError: another process supervises it.
        """

    async def is_supervised(self, crawl: str) -> bool:
        """Whether a live process supervises the crawl."""

    async def close(self) -> None:
        """Release the connections of this process."""


class KeySize(msgspec.Struct, frozen=True):
    """All keys of one kind in a crawl: how many there are, and the bytes they take."""

    kind: str
    keys: int
    bytes: int


@runtime_checkable
class KeySizes(Protocol):
    """A catalog that can say what takes its memory. Optional."""

    async def key_sizes(self, crawl: str) -> list[KeySize]:
        """Return the kinds of keys of a crawl, the largest first. Sizes of many keys are estimated from some of them.

        :raises StoreError: no crawl has this name.
        """


@runtime_checkable
class Identified(Protocol):
    """A catalog whose crawls are expensive to open, so that a long-running program keeps them open. Optional."""

    async def identify(self, crawl: str) -> Hashable:
        """Return what distinguishes a crawl from others, also from a later one of the same name.

        :raises StoreError: no crawl has this name.
        """
