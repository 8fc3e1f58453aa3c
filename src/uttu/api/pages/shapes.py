"""What pages read and change: the values they show, and :class:`PageData`, the functions that give them.

Pages know nothing of stores and brokers. They call one object with the methods of :class:`PageData`; the API's data
functions are the same. ``store`` and ``bus`` are the short names of the stores and brokers that the dashboard watches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from uttu.api.accounts import AccountRow, Role, User
from uttu.api.audit import AuditEntry, AuditPage
from uttu.model.history import CrawlEvent
from uttu.model.inspection import DeadGroup, DeadQuery, LanePage, LaneQuery
from uttu.model.lease import DeadLetter, LaneState
from uttu.operations.bus import BusDescription, Delivery, DetailTable, Group, TopicState
from uttu.operations.crawls import CrawlStatus
from uttu.operations.explanation import CrawlExplanation

__all__ = [
    "AccountRow",
    "AuditEntry",
    "AuditPage",
    "BusDescription",
    "DetailTable",
    "Role",
    "TopicState",
    "User",
]


class WaitKind(StrEnum):
    """Why a host waits."""

    HELD = "held"
    ROBOTS = "robots"
    PACE = "pace"
    ACTIVE = "active"
    READY = "ready"
    PINNED = "pinned"
    IDLE = "idle"


class LaneWait(msgspec.Struct, frozen=True, kw_only=True):
    """Why a host waits, and until when (Unix time; 0 if it does not wait). ``text``: what the store says about it."""

    kind: WaitKind
    until: float = 0.0
    text: str = ""


class ProblemKind(StrEnum):
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


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong right now. ``fields`` are the values that its sentence names."""

    kind: ProblemKind
    store: str = ""
    crawl: str = ""
    bus: str = ""
    fields: dict[str, str | int | float] = {}


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a crawl is. ``remaining``: seconds until its known pages are done at this rate, if that is known."""

    share: float | None = None
    rate: float = 0.0
    remaining: float | None = None
    waits: WaitKind | None = None
    """What it waits for, if it does not fetch anything now."""


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl over some ``seconds`` that end at ``at``. Numbers but the last two and latencies are per second."""

    at: float
    seconds: float
    pages: float = 0.0
    items: float = 0.0
    errors: float = 0.0
    retries: float = 0.0
    bytes: float = 0.0
    latency_mean: float | None = None
    latency_p50: float | None = None
    latency_p95: float | None = None
    statuses: dict[str, float] = {}
    pending: int = 0
    workers: int = 0


class CrawlHistory(msgspec.Struct, frozen=True):
    """The history of a crawl, the oldest point first."""

    points: list[HistoryPoint]


class CrawlRow(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl in the overview. ``recent``: pages per second over the last minutes, the oldest first."""

    store: str
    status: CrawlStatus
    rate: float = 0.0
    recent: list[float] = []


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A store that the dashboard watches. ``error`` is empty if it answers."""

    name: str
    address: str
    crawls: int = 0
    error: str = ""


class BusHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that the dashboard watches. ``error`` is empty if it answers."""

    name: str
    kind: str
    address: str
    groups: int = 0
    lag: int = 0
    dead: int = 0
    error: str = ""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the dashboard watches, in short."""

    crawls: list[CrawlRow] = []
    stores: list[StoreHealth] = []
    buses: list[BusHealth] = []
    problems: list[Problem] = []


class CrawlView(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl with its progress and its dead letters by kind. ``trimmed``: items that only outputs have."""

    status: CrawlStatus
    progress: Progress
    dead_kinds: dict[str, int] = {}
    trimmed: int = 0


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters, and the groups of all of them."""

    letters: list[DeadLetter]
    groups: list[DeadGroup] = []
    next: str = ""


class ItemRow(msgspec.Struct, frozen=True, kw_only=True):
    """An item. ``url``: the page that it is from, if the item has it."""

    position: int
    id: str = ""
    url: str = ""
    value: dict[str, Any] = {}


class ItemPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of items, the newest first. ``next`` is 0 at the end."""

    items: list[ItemRow]
    next: int = 0
    columns: list[str] = []


class LogLine(msgspec.Struct, frozen=True):
    """A line of a worker's log."""

    at: float
    level: str
    text: str


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """A worker of a crawl. ``age``: seconds since its last report."""

    name: str
    alive: bool
    age: float
    host: str = ""
    pid: int = 0
    started: float = 0.0
    rate: float = 0.0
    pages: int = 0
    items: int = 0
    retries: int = 0
    in_flight: int = 0
    held: int = 0
    concurrency: int = 0
    flying: list[str] = []
    log: list[LogLine] = []
    draining: bool = False


class SettingValue(msgspec.Struct, frozen=True):
    """An effective setting and where it came from: default, spider, uttu.toml, environment or flag."""

    name: str
    value: str
    source: str


class LagPoint(msgspec.Struct, frozen=True):
    """The lag of all groups of a broker at one moment."""

    at: float
    lags: dict[str, int]


class KeyKind(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of a crawl in Redis, by kind."""

    crawl: str
    kind: str
    keys: int
    bytes: int


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for a page of tasks, the latest first."""

    state: str = ""
    name: str = ""
    match: str = ""
    limit: int = 50
    after: str = ""


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
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


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tasks. ``counts``: tasks by state."""

    tasks: list[TaskRow]
    next: str = ""
    counts: dict[str, int] = {}


class JobWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker of the job queue."""

    name: str
    pool: str = ""
    concurrency: int = 0
    active: int = 0
    reserved: int = 0
    queues: list[str] = []
    processed: int = 0
    pid: int = 0


class JobQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of jobs. A number is None if the broker does not report it."""

    name: str
    messages: int | None = None
    consumers: int | None = None


class JobsView(msgspec.Struct, frozen=True, kw_only=True):
    """The workers and queues of the jobs. ``flower``: the address of Flower, if it runs."""

    broker: str
    workers: list[JobWorker] = []
    asking: bool = False
    """Whether the first answers of workers are still awaited."""
    queues: list[JobQueue] = []
    tasks: list[str] = []
    """Names of tasks that can be sent."""
    flower: str = ""


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its next times (Unix times). ``source``: code, uttu.toml or command."""

    name: str
    task: str
    when: str
    state: str
    source: str = "command"
    fires: list[float] = []
    last: float = 0.0
    last_task: str = ""
    last_result: str = ""
    sent: int = 0
    skipped: int = 0
    missed: int = 0
    note: str = ""


class SpiderArgument(msgspec.Struct, frozen=True, kw_only=True):
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
    arguments: list[SpiderArgument] = []
    error: str = ""


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
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


class StartedCrawl(msgspec.Struct, frozen=True, kw_only=True):
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

    async def read_overview(self) -> Overview: ...
    async def read_crawl(self, store: str, crawl: str) -> CrawlView: ...
    async def read_history(self, store: str, crawl: str, seconds: float, points: int) -> CrawlHistory: ...
    async def read_events(self, store: str, crawl: str, after: int, limit: int) -> list[CrawlEvent]: ...
    async def read_lanes(self, store: str, crawl: str, query: LaneQuery) -> LanePage: ...
    def describe_wait(self, lane: LaneState) -> LaneWait: ...
    async def read_dead_letters(self, store: str, crawl: str, query: DeadQuery) -> DeadLetters: ...
    async def explain(self, store: str, crawl: str, url: str) -> CrawlExplanation: ...
    async def read_items(self, store: str, crawl: str, limit: int, before: int, match: str) -> ItemPage: ...
    async def read_workers(self, store: str, crawl: str) -> list[WorkerState]: ...
    async def read_settings(self, store: str, crawl: str) -> list[SettingValue]: ...

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
        self, bus: str, topic: str, payload: str, key: str, headers: Mapping[str, str], by: str
    ) -> None: ...
    async def purge_group(self, bus: str, group: str, dead: bool, forget: bool, by: str) -> int: ...
    async def republish_dead(self, bus: str, group: str, by: str) -> int: ...

    async def read_jobs(self) -> JobsView: ...
    async def read_tasks(self, query: TaskQuery) -> TaskPage: ...
    async def read_task(self, id: str) -> TaskRow: ...
    async def send_task(self, name: str, args: str, kwargs: str, by: str) -> str: ...
    async def revoke_task(self, id: str, terminate: bool, by: str) -> None: ...
    async def resize_pool(self, worker: str, change: int, by: str) -> None: ...
    async def shut_down_worker(self, worker: str, by: str) -> None: ...

    async def read_schedules(self) -> list[ScheduleRow]: ...
    async def add_schedule(self, name: str, table: Mapping[str, Any], by: str) -> None: ...
    async def change_schedule(self, name: str, action: str, by: str) -> None: ...

    async def find_spiders(self) -> list[SpiderFile]: ...
    async def start_crawl(self, request: StartRequest, by: str) -> StartedCrawl: ...

    async def read_users(self) -> list[AccountRow]: ...
    async def add_user(self, name: str, password: str, role: Role, by: str) -> None: ...
    async def add_token(self, name: str, role: Role, by: str) -> str: ...
    async def remove_user(self, name: str, by: str) -> None: ...
    async def remove_token(self, name: str, by: str) -> None: ...
    async def read_audit(self, limit: int, before: int) -> AuditPage: ...
