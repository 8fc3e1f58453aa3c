"""A crawl as a value: its name, its state, its counts, its rules and limits, and the settings that it takes.

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
from typing import Any, Final, Literal, TypedDict

import msgspec

from uttu.errors import ConfigError
from uttu.model.lease import Pace


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


class ReasonKind(StrEnum):
    """The reasons that decide what a process does or shows. All others are ``OTHER``, with a text to show."""

    OTHER = "other"
    FAILED = "failed"
    """The crawl stopped because of an error, which is the text."""
    INTERRUPTED = "interrupted"
    """A signal stops the crawl. Pages in flight have no time limit, because the user can send a second signal; for any
    other reason they have a grace period."""
    REVOKED = "revoked"
    """The job that runs the crawl was revoked."""
    MOVED = "moved"
    """The crawl was moved to another frontier; the text is its address."""
    MOVING = "moving"
    """The crawl is being copied from another frontier, whose address is the text, and is not complete yet."""


_SENTENCES: Final = {
    ReasonKind.OTHER: "{}",
    ReasonKind.FAILED: "{}",
    ReasonKind.INTERRUPTED: "interrupted",
    ReasonKind.REVOKED: "revoked",
    ReasonKind.MOVED: "moved to {}",
    ReasonKind.MOVING: "being moved here from {}",
}


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a crawl is in its state. ``str(reason)`` is the text to show; empty if there is no reason."""

    text: str = ""
    kind: ReasonKind = ReasonKind.OTHER

    def __str__(self) -> str:
        return _SENTENCES[self.kind].format(self.text)

    def __bool__(self) -> bool:
        return bool(self.text) or self.kind is not ReasonKind.OTHER


NO_REASON: Final = Reason()
INTERRUPTED: Final = Reason(kind=ReasonKind.INTERRUPTED)
REVOKED: Final = Reason(kind=ReasonKind.REVOKED)


Order = Literal["fifo", "lifo", "priority"]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a frontier; the same for all workers of a crawl.

    :param ahead: seconds. A lane that becomes due within this time may be leased early; ``Lease.wait`` says how long
        the worker holds the request back. Without it every request would start one round trip late.
    :param max_losses: a request is dead after this many leases that ended without an outcome, because it probably kills
        its worker.
    :param max_pages: stop leasing at this number of pages in the crawl; 0 means no limit.
    :param max_items: stop leasing at this number of items in the crawl; 0 means no limit.
    :param max_per_lane: admit at most this number of requests per host; 0 means no limit.
    """

    order: Order = "fifo"
    pace: Pace = Pace(0.5, 1)
    probe: bool = False
    lease_seconds: float = 60.0
    ahead: float = 0.2
    max_losses: int = 8
    max_pages: int = 0
    max_items: int = 0
    max_per_lane: int = 0


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


class LogLine(msgspec.Struct, frozen=True):
    """A line of a worker's log: the Unix time, the level in lower case, and the text without passwords."""

    at: float
    level: str
    text: str


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The latest counters of a worker, stored in the ledger as JSON every second."""

    pid: int = 0
    host: str = ""
    """The name of the machine."""
    started: float = 0.0
    fetched: int = 0
    pages: int = 0
    items: int = 0
    retries: int = 0
    refused: int = 0
    """Outcomes that the frontier refused because their leases were lost."""
    bytes: int = 0
    in_flight: int = 0
    held: int = 0
    concurrency: int = 0
    dead: dict[str, int] = {}
    statuses: dict[str, int] = {}
    slowest: list[tuple[str, float]] = []
    flying: list[str] = []
    """URLs of some pages in flight, the oldest first."""
    logins: list[str] = []
    """The first host with a response that looks like a login; see :class:`uttu.engine.stats.LoginWatch`."""
    giving: list[str] = []
    """The handlers that yielded an item or a link at least once."""
    empty: dict[str, int] = {}
    """For each handler, the pages for which it yielded nothing, until it first yielded something."""
    given_back: list[str] = []
    """URLs of pages that were in flight when the worker stopped; they are fetched again later."""
    failed: int = 0
    """Fetches without an answer, or with one that was too slow."""
    seconds: float = 0.0
    """The sum of all fetch times."""
    latency: tuple[int, ...] = ()
    """The histogram of fetch times; see :data:`uttu.model.history.LATENCY_BOUNDS`."""
    log: list[LogLine] = []
    """The latest lines of the process's log, the oldest first."""


class SettingSource(StrEnum):
    """Where the value of a setting came from, from the weakest source to the strongest."""

    DEFAULT = "default"
    SPIDER = "spider"
    FILE = "uttu.toml"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class SettingValue(msgspec.Struct, frozen=True):
    """A setting of a crawl as it was when the crawl was started or resumed last. Secrets are masked."""

    name: str
    value: Any
    source: SettingSource = SettingSource.DEFAULT


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
