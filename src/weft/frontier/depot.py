"""Where crawls are kept: a folder of SQLite files, or a Redis server.

A depot keeps one crawl per name. A crawl that is to start again is replaced only once the new one has
begun: until then the former one is put aside, and put back if the new one can't begin.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from weft.errors import ConfigError
from weft.frontier.base import Feed, Frontier, Inspector, Ledger, Memo, Outbox, Rules
from weft.frontier.moving import Mover


def is_name(crawl: str) -> bool:
    """Whether a crawl, and so a spider, can be called so: the name is that of a file, and of no other folder."""
    return bool(crawl) and all(part.isalnum() or part in "-_." for part in crawl) and not crawl.startswith(".")


def check_name(crawl: str) -> None:
    """:raises ConfigError: no crawl can be called so."""
    if not is_name(crawl):
        raise ConfigError(f"a crawl's name is made of letters, digits, '-', '_' and '.': {crawl!r} is not")


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl's state, in all its roles. Closing the frontier closes them all."""

    frontier: Frontier
    outbox: Outbox
    memo: Memo
    ledger: Ledger
    inspector: Inspector
    mover: Mover
    feed: Feed | None = None
    """None where other programs can't push."""


class Depot(Protocol):
    """All methods may raise ``StoreError``; those that would make or open something, ``ConfigError`` for what is no
    crawl's name (:func:`is_name`)."""

    @property
    def address(self) -> str:
        """What ``--frontier`` calls it, masked; empty for the folder where commands are run."""

    @property
    def shared(self) -> bool:
        """Whether workers of other machines can take part, far from a supervisor. If not, a crawl without a
        supervisor has no workers that count."""

    async def names(self) -> list[str]:
        """All crawls, in no order."""

    async def open(self, crawl: str, rules: Rules) -> Store:
        """:raises StoreError: there is none of this name, or it can't be used."""

    async def create(self, crawl: str, rules: Rules) -> Store:
        """A new, empty crawl. One that is there under this name is put aside."""

    async def keep(self, crawl: str) -> None:
        """The new crawl has begun: drop the one that was put aside, if any."""

    async def restore(self, crawl: str) -> None:
        """The new crawl could not begin: drop it and put back the former one. Nothing is done if none was put aside."""

    def supervise(self, crawl: str) -> AbstractAsyncContextManager[None]:
        """Be the one supervisor of a crawl, which need not be there yet.

        :raises WeftError: another is.
        """

    async def is_supervised(self, crawl: str) -> bool:
        """Whether a living process supervises it."""

    async def close(self) -> None:
        """Let go of what is held on this side."""
