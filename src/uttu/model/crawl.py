"""A crawl as a value: its name, its state, its counts, its limits and the settings that it takes.

State changes, as they are written to the ledger:

    RUNNING ⇄ PAUSED         an operator pauses and resumes
    RUNNING → STOPPING       an operator, a signal or a limit ends the crawl; workers drain
    STOPPING → STOPPED       ended before its work was done; the same command resumes it
    STOPPING → LIMITED       ended at a limit, with work left over
    RUNNING → FINISHED       nothing was left to do

The ledger stores the values of :class:`CrawlState` as text, so the names in quotes never change. ``RUNNING`` without a
living process means that the crawl was killed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Literal, TypedDict

import msgspec

from uttu.errors import ConfigError


def is_crawl_name(crawl: str) -> bool:
    """Whether a crawl, and so a spider, can have this name. It becomes a file name, so it must not contain a path."""
    return bool(crawl) and all(part.isalnum() or part in "-_." for part in crawl) and not crawl.startswith(".")


def check_crawl_name(crawl: str) -> None:
    """:raises ConfigError: ``crawl`` is not a valid name."""
    if not is_crawl_name(crawl):
        raise ConfigError(f"Invalid crawl name {crawl!r}: use letters, digits, '-', '_' and '.'")


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a crawl at one moment, exact. Every admitted request is counted in one of the first five fields."""

    pending: int = 0
    leased: int = 0
    delayed: int = 0
    done: int = 0
    dead: int = 0
    items: int = 0
    bytes: int = 0

    @property
    def seen(self) -> int:
        return self.pending + self.leased + self.delayed + self.done + self.dead

    @property
    def work(self) -> int:
        """Requests that are not done or dead yet. A crawl without any is finished."""
        return self.pending + self.leased + self.delayed

    @property
    def finished(self) -> bool:
        return self.work == 0


INTERRUPTED: Final = "interrupted"
"""The reason of a crawl that a signal stops. Then pages in flight have no time limit, because the user can send a
second signal; for any other reason they have a grace period."""


class CrawlState(StrEnum):
    """The state of a crawl, as stored in the ledger. ``RUNNING`` without a living process means that it was killed."""

    RUNNING = "running"
    PAUSED = "paused"
    """Workers finish the pages in flight and wait until the crawl is resumed."""
    STOPPING = "stopping"
    """Workers drain; ``reason`` says why."""
    STOPPED = "stopped"
    """Ended before its work was done: interrupted or failed. The same command resumes it."""
    LIMITED = "limited"
    """Ended at a limit, with work left over."""
    FINISHED = "finished"
    """Nothing was left to do."""

    @property
    def ended(self) -> bool:
        """Whether the same command starts a new crawl instead of resuming this one."""
        return self in (CrawlState.LIMITED, CrawlState.FINISHED)


class CrawlLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a crawl; 0 means no limit.

    The frontier enforces ``pages`` and ``items`` exactly, over all workers. ``bytes`` and ``seconds`` are checked about
    once a second.
    """

    pages: int = 0
    items: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def reached(self, counts: Counts, seconds: float) -> str | None:
        """The limit that was reached, as text; None if none was."""
        if self.pages and counts.done + counts.dead >= self.pages:
            return f"limit of {self.pages:,} pages"
        if self.reached_items(counts):
            return f"limit of {self.items:,} items"
        if self.bytes and counts.bytes >= self.bytes:
            return f"limit of {self.bytes:,} bytes"
        if self.seconds and seconds >= self.seconds:
            return f"limit of {self.seconds:g} seconds"
        return None

    def reached_items(self, counts: Counts) -> bool:
        return bool(self.items) and counts.items >= self.items


class SettingValues(TypedDict, total=False):
    """Settings of a crawl as keywords of ``Spider(…)`` and ``uttu.run(…)``; see :class:`uttu.settings.Settings`."""

    user_agent: str
    robots: bool
    delay: float
    per_host: int
    throttle: bool
    max_crawl_delay: float
    max_retry_after: float
    nofollow: bool
    noindex: bool
    domains: Sequence[str]
    private: bool
    max_depth: int
    max_url_length: int
    max_pages_per_host: int
    stay: bool
    max_pages: int
    max_items: int
    max_bytes: int
    max_seconds: float
    concurrency: int
    timeout: float
    connect_timeout: float
    read_timeout: float
    max_body: int
    retries: int
    max_redirects: int
    meta_refresh: bool
    cookies: bool
    http2: bool
    verify: bool
    ca_file: str
    proxy: str
    headers: Mapping[str, str]
    cache: bool
    fetcher: str
    frontier: str
    keep_items: int
    order: Literal["fifo", "lifo", "priority"]
    lease_seconds: float
    bus: str
    feed: str
    feed_idle: float
    handler_timeout: float
    max_block: float
    max_links_per_page: int
    max_items_per_page: int
    max_item_size: int
    max_items_size_per_page: int
