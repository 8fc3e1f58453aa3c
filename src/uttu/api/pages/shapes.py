"""What pages read and change: the values they show, and :class:`PageData`, the functions that give them.

Pages know nothing of stores and brokers. They call one object with the methods of :class:`PageData`; the API's data
functions are the same. ``store`` and ``bus`` are the short names of the stores and brokers that the dashboard watches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from uttu.api.accounts import AccountRow, Role, User
from uttu.api.audit import AuditEntry, AuditPage
from uttu.api.data.buses import BusHealth, LagPoint
from uttu.api.data.crawls import CrawlRow, CrawlView, StoreHealth
from uttu.api.data.jobs import JobsView
from uttu.model.crawl import LogLine
from uttu.model.inspection import DeadQuery, LanePage, LaneQuery
from uttu.model.lease import LaneState
from uttu.operations.bus import BusDescription, Delivery, DetailTable, Group, TopicState
from uttu.operations.crawls import DeadLetters
from uttu.operations.diagnosis import ProgressEstimate, ProgressWait, Waiting, WaitKind
from uttu.operations.explanation import CrawlExplanation
from uttu.operations.fetch import FetchedPage
from uttu.operations.history import CrawlHistory, EventPage, EventQuery, HistoryPoint
from uttu.operations.items import ItemPage, ItemRow
from uttu.operations.jobs import JobQueue, JobWorker
from uttu.operations.task_monitor import TaskQuery
from uttu.operations.workers import WorkerState

__all__ = [
    "AccountRow",
    "AuditEntry",
    "AuditPage",
    "BusDescription",
    "BusHealth",
    "CrawlHistory",
    "CrawlRow",
    "CrawlView",
    "DeadLetters",
    "DetailTable",
    "EventPage",
    "EventQuery",
    "FetchedPage",
    "HistoryPoint",
    "ItemPage",
    "ItemRow",
    "JobQueue",
    "JobWorker",
    "JobsView",
    "LagPoint",
    "LogLine",
    "ProgressEstimate",
    "ProgressWait",
    "Role",
    "StoreHealth",
    "TaskQuery",
    "TopicState",
    "User",
    "WaitKind",
    "Waiting",
    "WorkerState",
]


class HostWait(msgspec.Struct, frozen=True, kw_only=True):
    """Why a host waits, and until when (Unix time; 0 if it does not wait). ``text``: what the store says about it."""

    kind: WaitKind
    until: float = 0.0
    text: str = ""


class AlertKind(StrEnum):
    """What can be wrong right now."""

    STORE_AWAY = "store away"
    BUS_AWAY = "bus away"
    CUT_SHORT = "cut short"
    UNREADABLE = "unreadable"
    NO_WORKERS = "no workers"
    WORKER_SILENT = "worker silent"
    STALLED = "stalled"
    ERRORS = "errors"
    FAILED = "failed"
    UNATTENDED = "unattended"
    REFUSED = "refused"
    NO_ANSWER = "no answer"
    LAG = "lag"
    DEAD_MESSAGES = "dead messages"
    SCHEDULE = "schedule"
    OTHER = "other"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong right now. ``fields`` are the values that its sentence names."""

    kind: AlertKind
    store: str = ""
    crawl: str = ""
    bus: str = ""
    fields: dict[str, str | int | float] = {}


class OverviewContent(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the dashboard watches, in short."""

    crawls: list[CrawlRow] = []
    stores: list[StoreHealth] = []
    buses: list[BusHealth] = []
    problems: list[Alert] = []


class SettingRow(msgspec.Struct, frozen=True):
    """An effective setting and where it came from: default, spider, uttu.toml, environment or flag."""

    name: str
    value: str
    source: str


class KeyKind(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of a crawl in Redis, by kind, and what they take in its memory."""

    crawl: str
    kind: str
    keys: int
    bytes: int


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task. Times are Unix times; 0 if unknown. ``progress``: a share of 1, if the task reports it."""

    id: str
    name: str
    state: str
    args: str = ""
    kwargs: str = ""
    worker: str = ""
    received: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    runtime: float | None = None
    progress: float | None = None
    result: str = ""
    exception: str = ""
    traceback: str = ""


class TaskListing(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tasks. ``counts``: tasks by state."""

    tasks: list[TaskView]
    next: str = ""
    counts: dict[str, int] = {}


class ScheduleLine(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule. Times are Unix times, ``fires`` those of the time line. ``source``: code, uttu.toml or command."""

    name: str
    task: str
    when: str
    state: str
    source: str = "command"
    next: float = 0.0
    fires: list[float] = []
    last: float = 0.0
    last_task: str = ""
    last_result: str = ""
    sent: int = 0
    skipped: int = 0
    missed: int = 0
    note: str = ""


class ArgumentField(msgspec.Struct, frozen=True, kw_only=True):
    """An argument that a spider declares. ``default`` is None if it must be given."""

    name: str
    type: str = "str"
    default: str | None = None
    help: str = ""


class SpiderFile(msgspec.Struct, frozen=True, kw_only=True):
    """A spider file of the project. ``error``: why it can't be loaded."""

    path: str
    name: str = ""
    doc: str = ""
    arguments: list[ArgumentField] = []
    error: str = ""


class StartForm(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl to start, or to schedule if ``schedule`` is a crontab line or an interval."""

    file: str
    arguments: dict[str, str] = {}
    settings: dict[str, str] = {}
    outputs: list[str] = []
    workers: int = 1
    crawl: str = ""
    store: str = ""
    fresh: bool = False
    schedule: str = ""


class StartOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl that was started in the background; ``crawl`` is empty if it was scheduled instead."""

    crawl: str
    store: str = ""
    pid: int = 0
    log: str = ""


class PageData(Protocol):
    """Reads and changes everything that pages show. ``by`` is the name of the user.

    All methods raise :class:`~uttu.errors.UttuError` if the store or broker is away, or has no such thing.
    """

    def list_stores(self) -> list[StoreHealth]:
        """The names and addresses of all stores; none of them is asked."""

    async def read_overview(self) -> OverviewContent: ...
    async def read_crawl(self, store: str, crawl: str) -> CrawlView: ...
    async def read_history(self, store: str, crawl: str, seconds: float, points: int) -> CrawlHistory: ...
    async def read_events(self, store: str, crawl: str, query: EventQuery) -> EventPage: ...
    async def read_lanes(self, store: str, crawl: str, query: LaneQuery) -> LanePage: ...
    def describe_wait(self, lane: LaneState) -> HostWait: ...
    async def read_dead_letters(self, store: str, crawl: str, query: DeadQuery) -> DeadLetters: ...
    async def explain(self, store: str, crawl: str, url: str) -> CrawlExplanation: ...
    async def read_items(self, store: str, crawl: str, limit: int, before: int, match: str) -> ItemPage: ...
    async def read_workers(self, store: str, crawl: str) -> list[WorkerState]: ...
    async def read_settings(self, store: str, crawl: str) -> list[SettingRow]: ...
    async def read_crawl_keys(self, store: str, crawl: str) -> list[KeyKind]: ...

    async def change_state(self, store: str, crawl: str, action: str, by: str) -> None: ...
    async def set_rate(self, store: str, crawl: str, host: str, delay: float | None, by: str) -> None: ...
    async def push_urls(self, store: str, crawl: str, urls: Sequence[str], by: str) -> int: ...
    async def retry_dead(self, store: str, crawl: str, kind: str, message: str, url: str, by: str) -> int: ...
    async def drain_worker(self, store: str, crawl: str, worker: str, by: str) -> None: ...
    async def export_items(self, store: str, crawl: str, target: str, by: str) -> int: ...
    async def move_crawl(self, store: str, crawl: str, target: str, by: str) -> None: ...

    async def read_buses(self) -> list[BusHealth]: ...
    async def describe_bus(self, bus: str) -> BusDescription: ...
    async def read_groups(self, bus: str) -> list[Group]: ...
    async def read_lags(self, bus: str) -> list[LagPoint]: ...
    async def read_keys(self, bus: str) -> list[KeyKind]: ...
    async def peek_messages(self, bus: str, group: str, limit: int, dead: bool) -> list[Delivery]: ...
    async def publish_message(
        self, bus: str, topic: str, payload: str, key: str, headers: Mapping[str, str], text: bool, by: str
    ) -> None: ...
    async def purge_group(self, bus: str, group: str, dead: bool, forget: bool, by: str) -> int: ...
    async def republish_dead(self, bus: str, group: str, by: str) -> int: ...

    async def read_jobs(self) -> JobsView: ...
    async def read_tasks(self, query: TaskQuery) -> TaskListing: ...
    async def read_task(self, id: str) -> TaskView: ...
    async def send_task(self, name: str, args: str, kwargs: str, by: str) -> str: ...
    async def revoke_task(self, id: str, terminate: bool, by: str) -> None: ...
    async def resize_pool(self, worker: str, change: int, by: str) -> None: ...
    async def shut_down_worker(self, worker: str, by: str) -> None: ...

    async def read_schedules(self, hours: float) -> list[ScheduleLine]: ...
    async def add_schedule(self, name: str, table: Mapping[str, Any], by: str) -> None: ...
    async def change_schedule(self, name: str, action: str, by: str) -> None: ...
    async def preview_schedule(self, name: str, count: int, timezone: str) -> list[datetime]: ...
    async def fetch_page(self, url: str) -> FetchedPage: ...

    async def find_spiders(self) -> list[SpiderFile]: ...
    async def start_crawl(self, request: StartForm, by: str) -> StartOutcome: ...

    async def read_users(self) -> list[AccountRow]: ...
    async def add_user(self, name: str, password: str, role: Role, by: str) -> None: ...
    async def add_token(self, name: str, role: Role, by: str) -> str: ...
    async def remove_user(self, name: str, by: str) -> None: ...
    async def remove_token(self, name: str, by: str) -> None: ...
    async def read_audit(self, limit: int, before: int) -> AuditPage: ...
