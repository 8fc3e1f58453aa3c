"""Data for the pages of the dashboard without stores or brokers: a day in the life of a few crawls.

``SampleData()`` answers every read with plausible values; ``hostile`` puts markup into every text that a site, a
message or a worker chooses. Changes are only recorded, in ``calls``.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from uttu.api.pages.shapes import (
    AccountRow,
    Alert,
    AlertKind,
    ArgumentField,
    AuditEntry,
    AuditPage,
    BusDescription,
    BusHealth,
    CrawlHistory,
    CrawlRow,
    CrawlView,
    DeadLetters,
    DetailTable,
    EventPage,
    EventQuery,
    FetchedPage,
    HistoryPoint,
    HostWait,
    ItemPage,
    ItemRow,
    JobQueue,
    JobsView,
    JobWorker,
    KeyKind,
    LagPoint,
    LogLine,
    OverviewContent,
    ProgressEstimate,
    ProgressWait,
    Role,
    ScheduleLine,
    SettingRow,
    SpiderFile,
    StartForm,
    StartOutcome,
    StoreHealth,
    TaskListing,
    TaskQuery,
    TaskView,
    TopicState,
    Waiting,
    WaitKind,
    WorkerState,
)
from uttu.model import Counts
from uttu.model.crawl import CrawlState, Reason, WorkerReport
from uttu.model.facts import CrawlFacts
from uttu.model.history import CrawlEvent, EventKind
from uttu.model.inspection import DeadGroup, DeadQuery, LanePage, LaneQuery
from uttu.model.lease import DeadLetter, LaneState, Pace, Redirect, RequestState, Trace
from uttu.model.request import Request
from uttu.operations.bus import Delivery, Group
from uttu.operations.crawls import BrokenState, CrawlDetails, CrawlStatus
from uttu.operations.diagnosis import Problem, ProblemKind
from uttu.operations.explanation import CrawlExplanation, UrlExplanation

HOSTILE = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>{{7*7}}\x00\x1b[31m"


def make_status(
    name: str, state: CrawlState | BrokenState, done: int, pending: int, *, alive: bool = False, reason: str = ""
) -> CrawlStatus:
    now = time.time()
    workers = {}
    if alive:
        report = WorkerReport(pid=4711, started=now - 4000, pages=done // 2, in_flight=16, concurrency=16)
        workers = {"node-1-4711": (0.4, report), "node-2-801": (0.8, report)}
    return CrawlStatus(
        name=name,
        state=state,
        reason=Reason(reason),
        supervised=alive,
        alive=alive,
        counts=Counts(
            pending=pending,
            leased=31 if alive else 0,
            delayed=pending // 200,
            done=done,
            dead=done // 140,
            items=done * 7 // 10,
            bytes=done * 48_211,
        ),
        facts=CrawlFacts(spider=name, file=f"/srv/crawl/{name}.py", began=now - 9000, arguments={"country": "de"}),
        workers=workers,
        active=now - (1 if alive else 86_400),
        folder="/srv/crawl",
    )


class SampleData:
    """Answers as :class:`uttu.api.pages.shapes.PageData` does."""

    def __init__(self, *, hostile: bool = False, empty: bool = False) -> None:
        self.hostile = hostile
        self.is_empty = empty
        self.calls: list[tuple[Any, ...]] = []
        self.now = time.time()

    def _text(self, plain: str) -> str:
        return plain + HOSTILE if self.hostile else plain

    def _url(self, path: str) -> str:
        return f"https://shop.example.org/{path}" + ("?q=<script>alert(1)</script>" if self.hostile else "")

    def _statuses(self) -> list[CrawlStatus]:
        if self.is_empty:
            return []
        return [
            make_status("shop-prices", CrawlState.RUNNING, 1_284_311, 412_093, alive=True),
            make_status("news-archive", CrawlState.RUNNING, 88_120, 3_410, alive=True),
            make_status(
                "forum-threads", CrawlState.PAUSED, 45_002, 120_400, alive=True, reason="paused by the operator"
            ),
            make_status("catalogue", BrokenState.CUT_SHORT, 12_044, 90_112),
            make_status("jobs-board", CrawlState.LIMITED, 10_000, 5_313, reason=self._text("limit of 10,000 pages")),
            make_status("weather", CrawlState.FINISHED, 2_310, 0),
        ]

    def list_stores(self) -> list[StoreHealth]:
        return [StoreHealth(name="local", address="."), StoreHealth(name="other", address="redis://10.0.0.5/0")]

    async def read_overview(self) -> OverviewContent:
        random.seed(7)
        rates = {"shop-prices": 182.4, "news-archive": 24.0}
        rows = [
            CrawlRow(
                store="local" if at % 3 else "redis-10.0.0.5-6379-0",
                status=status,
                rate=rates.get(status.name, 0.0),
                recent=[
                    max(0.0, rates.get(status.name, 0.0) * (1 + 0.3 * math.sin(step / 6) + random.uniform(-0.15, 0.15)))
                    for step in range(60)
                ],
            )
            for at, status in enumerate(self._statuses())
        ]
        problems = [
            Alert(
                kind=AlertKind.CUT_SHORT,
                store="local",
                crawl="catalogue",
                fields={"pages": 90_562, "command": "uttu crawl catalogue.py"},
            ),
            Alert(
                kind=AlertKind.ERRORS,
                store="redis-10.0.0.5-6379-0",
                crawl="shop-prices",
                fields={"share": 0.24, "seconds": 300.0},
            ),
            Alert(kind=AlertKind.LAG, bus="rabbitmq-10.0.0.6", fields={"group": self._text("indexer"), "lag": 48_211}),
        ]
        return OverviewContent(
            crawls=rows,
            stores=[
                StoreHealth(name="local", address="sqlite:/srv/crawl/.uttu", crawls=4 if rows else 0),
                StoreHealth(name="redis-10.0.0.5-6379-0", address="redis://10.0.0.5:6379/0", crawls=2 if rows else 0),
            ],
            buses=await self.read_buses(),
            problems=[] if self.is_empty else problems,
        )

    async def read_crawl(self, store: str, crawl: str) -> CrawlView:
        known = {status.name: status for status in self._statuses()}
        status = known.get(crawl) or make_status(crawl, CrawlState.RUNNING, 0, 0, alive=True)
        share = status.counts.done / status.counts.seen if status.counts.seen else 0.0
        kinds = {"http": 6120, "timeout": 1840, "robots": 902, "dns": 211, "handler": 100}
        waits = [Waiting(kind, 0 if at < 3 else 1200 * at) for at, kind in enumerate(ProgressWait)]
        fields: dict[str, str | int | float] = {
            "reason": self._text("No space left on device"),
            "command": "uttu crawl",
        }
        problem = Problem(ProblemKind.FAILED, self._text(crawl), fields)
        return CrawlView(
            details=CrawlDetails(
                status=status,
                dead_kinds={} if self.is_empty else kinds,
                lanes=LanePage([]),
                held=LanePage([]),
                trimmed=0 if self.is_empty else 200_000,
            ),
            progress=ProgressEstimate(
                share=share,
                rate=182.4,
                estimate=2258.0 if status.alive else None,
                waits=[] if self.is_empty else waits,
            ),
            problems=[problem] if self.hostile else [],
        )

    async def read_history(self, store: str, crawl: str, seconds: float, points: int) -> CrawlHistory:
        if self.is_empty:
            return CrawlHistory([])
        random.seed(3)
        width = seconds / points
        made = []
        for at in range(points):
            if points * 0.42 < at < points * 0.47:
                continue
            wave = 1 + 0.25 * math.sin(at / 9) + random.uniform(-0.06, 0.06)
            pages = 180 * wave
            made.append(
                HistoryPoint(
                    at=self.now - seconds + (at + 1) * width,
                    seconds=width,
                    pages=pages,
                    items=pages * 0.7,
                    errors=pages * 0.02 * random.random(),
                    retries=pages * 0.06 * random.random(),
                    bytes=pages * 48_000,
                    latency_mean=0.3,
                    latency_p50=0.18 * wave,
                    latency_p95=0.9 * wave + random.uniform(0, 0.3),
                    statuses={
                        "2xx": pages * 0.9,
                        "3xx": pages * 0.05,
                        "4xx": pages * 0.03,
                        "5xx": pages * 0.015,
                        "none": 0.4,
                    },
                    pending=400_000 + int(20_000 * math.sin(at / 20)),
                    workers=2,
                )
            )
        return CrawlHistory(made)

    async def read_events(self, store: str, crawl: str, query: EventQuery) -> EventPage:
        if self.is_empty:
            return EventPage([])
        told: list[tuple[EventKind, dict[str, str | int | float]]] = [
            (EventKind.STATE, {"state": "running", "reason": ""}),
            (EventKind.WORKER, {"worker": self._text("node-1-4711"), "what": "joined", "pid": 4711}),
            (EventKind.WORKER, {"worker": "node-2-801", "what": "joined", "pid": 801}),
            (
                EventKind.LANE,
                {"lane": self._text("img.example.net"), "seconds": 120, "reason": "HTTP 429, Retry-After 120"},
            ),
            (EventKind.OPERATOR, {"by": "wang", "action": "rate", "host": "shop.example.org", "delay": 0.5}),
            (EventKind.OPERATOR, {"by": self._text("mia"), "action": "retry", "kind": "timeout", "count": 310}),
        ]
        made = [
            CrawlEvent(
                position=int((self.now - (len(told) * 12 - at) * 140) * 1e6),
                at=self.now - (len(told) * 12 - at) * 140,
                kind=kind,
                fields=fields,
            )
            for at, (kind, fields) in enumerate(told * 12)
        ]
        chosen = [each for each in reversed(made) if query.kind in (None, each.kind)][: query.limit]
        return EventPage(chosen, chosen[-1].position if len(made) > query.limit else 0)

    async def read_lanes(self, store: str, crawl: str, query: LaneQuery) -> LanePage:
        if self.is_empty:
            return LanePage([], "", 0)
        names = [
            "shop.example.org",
            "img.example.net",
            "cdn.example.com",
            "blog.example.org",
            "例え.example.jp",
            "slow.example.edu",
        ]
        lanes = [
            LaneState(
                name=self._text(name) if at == 2 else name,
                pending=220_000 // (at + 1),
                active=at % 3,
                total=500_000 // (at + 1),
                pace=Pace(0.25 * (at + 1), 2 if at == 0 else 1),
                wait=0.0 if at % 2 else 118.0,
                reason=self._text("HTTP 429, Retry-After 120") if at == 1 else "",
                pinned=at == 3,
            )
            for at, name in enumerate(names)
            if query.match in name
        ]
        return LanePage(lanes, "cursor-2", 100_412)

    def describe_wait(self, lane: LaneState) -> HostWait:
        kinds = list(WaitKind)
        kind = WaitKind.HELD if lane.reason else kinds[len(lane.name) % len(kinds)]
        if kind is WaitKind.HELD and not lane.reason:
            kind = WaitKind.PACE
        return HostWait(kind=kind, until=self.now + lane.wait if lane.wait else 0.0, text=lane.reason)

    async def read_dead_letters(self, store: str, crawl: str, query: DeadQuery) -> DeadLetters:
        if self.is_empty:
            return DeadLetters(letters=[], groups=[])
        groups = [
            DeadGroup(
                kind="http",
                message="HTTP 503 Service Unavailable",
                count=5210,
                last=self.now - 20,
                sample=self._url("a/1"),
            ),
            DeadGroup(
                kind="timeout", message="no answer within N s", count=1840, last=self.now - 400, sample=self._url("b")
            ),
            DeadGroup(
                kind="robots",
                message="robots.txt forbids it",
                count=902,
                last=self.now - 4000,
                sample=self._url("admin"),
            ),
            DeadGroup(
                kind="handler",
                message=self._text("KeyError: '…'"),
                count=100,
                last=self.now - 90_000,
                sample=self._url("c/9"),
            ),
        ]
        letters = [
            DeadLetter(
                request=Request(self._url(f"product/{at}")),
                kind="handler" if at % 3 == 0 else "http",
                reason=self._text("KeyError: 'price'" if at % 3 == 0 else "HTTP 503 Service Unavailable"),
                detail=self._text("Traceback (most recent call last):\n  File spider.py\nKeyError: 'price'")
                if at % 3 == 0
                else "",
                status=503 if at % 3 else 200,
                attempt=4,
                at=self.now - 60 * at,
            )
            for at in range(8)
        ]
        return DeadLetters(letters=letters, groups=groups, next="cursor-3")

    async def explain(self, store: str, crawl: str, url: str) -> CrawlExplanation:
        status = (await self.read_crawl(store, crawl)).details.status
        first = Trace(
            state=RequestState.DONE,
            request=Request(url, depth=3),
            attempt=2,
            lane="shop.example.org",
            at=self.now - 300,
            status=301,
            redirect=Redirect(self._url("new")),
        )
        second = Trace(
            state=RequestState.DEAD,
            request=Request(self._url("new"), via=(url,)),
            attempt=4,
            lane="shop.example.org",
            worker=self._text("node-1-4711"),
            at=self.now - 200,
            status=503,
            kind="http",
            reason=self._text("HTTP 503 Service Unavailable"),
            detail=self._text("Traceback …"),
        )
        unknown = UrlExplanation(
            url=url,
            trace=Trace(state=RequestState.UNKNOWN),
            guesses=(self._text("out of scope: another domain (example.org)"),),
            known_as=(self._url("other"),),
        )
        chain = (
            [unknown]
            if "unknown" in url
            else [UrlExplanation(url=url, trace=first), UrlExplanation(url=self._url("new"), trace=second)]
        )
        return CrawlExplanation(status, chain)

    async def read_items(self, store: str, crawl: str, limit: int, before: int, match: str) -> ItemPage:
        if self.is_empty:
            return ItemPage(items=[], next=0, columns=[])
        items = [
            ItemRow(
                position=899_017 - at,
                id=f"i{at}",
                url=self._url(f"product/{at}"),
                value={
                    "url": self._url(f"product/{at}"),
                    "title": self._text(
                        ["Walnut desk lamp", "Cast iron pan, 28 cm", "无线降噪耳机 黑色", "Trail running shoe"][at % 4]
                    ),
                    "price": 19.9 + at * 3,
                    "currency": "EUR",
                    "in_stock": at % 3 != 0,
                    "tags": ["home", "light"],
                    "formula": "=HYPERLINK(1)" if self.hostile else None,
                },
            )
            for at in range(12)
            if before == 0
        ]
        return ItemPage(
            items=items,
            next=899_005 if before == 0 else 0,
            columns=["url", "title", "price", "currency", "in_stock", "tags", "formula"],
        )

    async def read_workers(self, store: str, crawl: str) -> list[WorkerState]:
        if self.is_empty:
            return []
        log = [
            LogLine(self.now - 30, "info", self._text("uttu.engine: joined crawl shop-prices")),
            LogLine(self.now - 12, "warning", "uttu.engine: img.example.net is held for 120 s: HTTP 429"),
            LogLine(self.now - 4, "error", self._text("uttu.engine: handler parse_product failed: KeyError: 'price'")),
        ]
        return [
            WorkerState(
                name=self._text(name),
                alive=at < 2,
                age=0.4 if at < 2 else 812.0,
                host=f"node-{at + 1}.crawl.internal",
                pid=4711 + at,
                started=self.now - 5000,
                rate=91.2,
                pages=642_100,
                items=450_000,
                retries=1_200,
                in_flight=15,
                held=40,
                concurrency=16,
                flying=[self._url(f"product/{each}") for each in range(5)] if at < 2 else [],
                log=log if at < 2 else [],
                draining=at == 1,
            )
            for at, name in enumerate(["node-1-4711", "node-2-801", "node-3-77"])
        ]

    async def read_settings(self, store: str, crawl: str) -> list[SettingRow]:
        return [
            SettingRow("concurrency", "16", "default"),
            SettingRow("delay", "0.25", "spider"),
            SettingRow("domains", self._text("example.org, example.net"), "spider"),
            SettingRow("max_pages", "2000000", "flag"),
            SettingRow("proxy", "http://user:***@proxy.internal:3128", "environment"),
            SettingRow("robots", "true", "default"),
            SettingRow("user_agent", "uttu (+https://example.org/bot)", "uttu.toml"),
        ]

    async def change_state(self, store: str, crawl: str, action: str, by: str) -> None:
        self.calls.append(("change_state", store, crawl, action, by))

    async def set_rate(self, store: str, crawl: str, host: str, delay: float | None, by: str) -> None:
        self.calls.append(("set_rate", store, crawl, host, delay, by))

    async def push_urls(self, store: str, crawl: str, urls: Sequence[str], by: str) -> int:
        self.calls.append(("push_urls", store, crawl, list(urls), by))
        return len(urls)

    async def retry_dead(self, store: str, crawl: str, kind: str, message: str, url: str, by: str) -> int:
        self.calls.append(("retry_dead", store, crawl, kind, message, url, by))
        return 5210

    async def drain_worker(self, store: str, crawl: str, worker: str, by: str) -> None:
        self.calls.append(("drain_worker", store, crawl, worker, by))

    async def export_items(self, store: str, crawl: str, target: str, by: str) -> int:
        self.calls.append(("export_items", store, crawl, target, by))
        return 12

    async def move_crawl(self, store: str, crawl: str, target: str, by: str) -> None:
        self.calls.append(("move_crawl", store, crawl, target, by))

    async def read_buses(self) -> list[BusHealth]:
        if self.is_empty:
            return []
        return [
            BusHealth(name="redis-10.0.0.5-6379-0", kind="redis", address="redis://10.0.0.5:6379/0", groups=3, lag=12),
            BusHealth(
                name="rabbitmq-10.0.0.6",
                kind="rabbitmq",
                address="amqp://crawl:***@10.0.0.6/",
                groups=4,
                lag=48_211,
                dead=17,
            ),
            BusHealth(
                name="kafka-10.0.0.7",
                kind="kafka",
                address="kafka://10.0.0.7:9092",
                error=self._text("Connection refused"),
            ),
        ]

    async def describe_bus(self, bus: str) -> BusDescription:
        if self.is_empty:
            return BusDescription(kind="redis")
        return BusDescription(
            kind="redis" if bus.startswith("redis") else "rabbitmq",
            version="4.1.2",
            topics=[
                TopicState(name=self._text("crawl.items"), messages=48_200, bytes=31_000_000),
                TopicState(name="crawl.control", messages=3),
            ],
            tables=[
                DetailTable(
                    title="Exchanges",
                    columns=("name", "type", "durable"),
                    rows=[("uttu.topics", "topic", "yes"), (self._text("uttu.dead"), "direct", None)],
                ),
                DetailTable(
                    title="Partitions",
                    columns=("topic", "partition", "leader", "end offset"),
                    rows=[("crawl.items", 0, 1, 99)],
                ),
            ],
        )

    async def read_groups(self, bus: str) -> list[Group]:
        if self.is_empty:
            return []
        return [
            Group(name="archive", topics=("crawl.#",), ready=40, unacknowledged=12, subscribers=2),
            Group(
                name=self._text("indexer"),
                topics=("crawl.items.#", self._text("crawl.more")),
                ready=48_000,
                unacknowledged=211,
                dead=17,
                subscribers=0,
            ),
            Group(name="mail", topics=("alerts.*",), ready=0, unacknowledged=0, delayed=3, subscribers=1),
        ]

    async def read_lags(self, bus: str) -> list[LagPoint]:
        if self.is_empty:
            return []
        return [
            LagPoint(
                self.now - 900 + at * 15,
                {
                    "archive": 50 + at % 7,
                    "indexer": 30_000 + at * 300,
                    "mail": 3,
                    self._text("indexer"): 30_000 + at * 300,
                },
            )
            for at in range(60)
        ]

    async def read_keys(self, bus: str) -> list[KeyKind]:
        if self.is_empty:
            return []
        return [
            KeyKind(crawl=self._text("shop-prices"), kind="seen", keys=64, bytes=91_200_000),
            KeyKind(crawl="shop-prices", kind="lanes", keys=100_412, bytes=480_000_000),
        ]

    async def read_crawl_keys(self, store: str, crawl: str) -> list[KeyKind]:
        return await self.read_keys(store)

    async def peek_messages(self, bus: str, group: str, limit: int, dead: bool) -> list[Delivery]:
        if self.is_empty:
            return []
        reason = {"uttu-reason": self._text("ValueError: price is missing")} if dead else {}
        return [
            Delivery(
                topic="crawl.items.shop",
                payload=b'{"title": "Walnut desk lamp", "price": 19.9}',
                key="shop",
                id="6f1c-1",
                headers={"x-crawl": self._text("shop-prices"), **reason},
            ),
            Delivery(
                topic=self._text("crawl.items.shop"),
                payload=self._text("plain text").encode(),
                key=self._text("k"),
                id="6f1c-2",
                attempt=3,
                headers=reason,
            ),
            Delivery(topic="crawl.items.shop", payload=b"\xff\xfe\x00", id="6f1c-3", headers=reason),
        ][:limit]

    async def publish_message(
        self, bus: str, topic: str, payload: str, key: str, headers: Mapping[str, str], text: bool, by: str
    ) -> None:
        self.calls.append(("publish_message", bus, topic, payload, key, dict(headers), text, by))

    async def purge_group(self, bus: str, group: str, dead: bool, forget: bool, by: str) -> int:
        self.calls.append(("purge_group", bus, group, dead, forget, by))
        return 17

    async def republish_dead(self, bus: str, group: str, by: str) -> int:
        self.calls.append(("republish_dead", bus, group, by))
        return 17

    async def read_jobs(self) -> JobsView:
        if self.is_empty:
            return JobsView(broker="redis://127.0.0.1:6379/0", workers=[], queues=[], tasks=[])
        return JobsView(
            broker="redis://10.0.0.5:6379/1",
            workers=[
                JobWorker(
                    name=self._text("celery@node-1"),
                    pool="prefork",
                    concurrency=8,
                    active=3,
                    reserved=2,
                    queues=("uttu",),
                    processed=4_121,
                    pid=991,
                ),
                JobWorker(
                    name="celery@node-2",
                    pool="prefork",
                    concurrency=8,
                    active=0,
                    queues=("uttu", "mail"),
                    processed=3_890,
                    pid=77,
                ),
            ],
            queues=[
                JobQueue(name="uttu", messages=12, consumers=2),
                JobQueue(name=self._text("mail"), messages=0, consumers=1),
            ],
            tasks=["uttu.crawl", "mail.send"],
            flower="http://127.0.0.1:5555/",
        )

    def _tasks(self) -> list[TaskView]:
        states = ["STARTED", "SUCCESS", "FAILURE", "SUCCESS", "RETRY", "PENDING", "REVOKED"]
        return [
            TaskView(
                id=f"8b1f{at:04d}-9d1e-4c2a-8a0f-77c0de1f{at:04d}",
                name="uttu.crawl" if at % 2 == 0 else "mail.send",
                state=state,
                args=self._text('["shop-prices.py"]'),
                kwargs='{"country": "de"}' if at % 2 == 0 else "{}",
                worker="celery@node-1" if state != "PENDING" else "",
                received=self.now - 60 * (at + 1),
                started=self.now - 58 * (at + 1) if state != "PENDING" else 0.0,
                ended=self.now - 30 * (at + 1) if state in ("SUCCESS", "FAILURE") else 0.0,
                runtime=28.4 * (at + 1) if state in ("SUCCESS", "FAILURE") else None,
                progress=0.42 if state == "STARTED" else None,
                result=self._text('{"pages": 10000}') if state == "SUCCESS" else "",
                exception=self._text("ConnectionError: refused") if state == "FAILURE" else "",
                traceback=self._text("Traceback (most recent call last):\n  …") if state == "FAILURE" else "",
            )
            for at, state in enumerate(states)
        ]

    async def read_tasks(self, query: TaskQuery) -> TaskListing:
        if self.is_empty:
            return TaskListing(tasks=[])
        tasks = [task for task in self._tasks() if not query.state or task.state == query.state]
        return TaskListing(tasks=tasks, next="c", counts={"SUCCESS": 4_110, "FAILURE": 12, "STARTED": 3})

    async def read_task(self, id: str) -> TaskView:
        return next((task for task in self._tasks() if task.id == id), self._tasks()[2])

    async def send_task(self, name: str, args: str, kwargs: str, by: str) -> str:
        self.calls.append(("send_task", name, args, kwargs, by))
        return "8b1f"

    async def revoke_task(self, id: str, terminate: bool, by: str) -> None:
        self.calls.append(("revoke_task", id, terminate, by))

    async def resize_pool(self, worker: str, change: int, by: str) -> None:
        self.calls.append(("resize_pool", worker, change, by))

    async def shut_down_worker(self, worker: str, by: str) -> None:
        self.calls.append(("shut_down_worker", worker, by))

    async def read_schedules(self, hours: float) -> list[ScheduleLine]:
        if self.is_empty:
            return []
        return [
            ScheduleLine(
                name="prices-morning",
                task="uttu.crawl",
                when="0 6 * * *",
                state="waiting",
                next=self.now + 3600 * 4,
                fires=[self.now + 3600 * 4 + 86_400 * each for each in range(8)],
                last=self.now - 72_000,
                last_task="8b1f0002-9d1e-4c2a-8a0f-77c0de1f0002",
                last_result="SUCCESS",
                sent=211,
                source="uttu.toml",
            ),
            ScheduleLine(
                name=self._text("news"),
                task="uttu.crawl",
                when="every 30 min",
                state="running",
                next=self.now + 720,
                fires=[self.now + 1800 * (each + 0.4) for each in range(60)],
                last=self.now - 700,
                last_result="STARTED",
                sent=9_022,
                skipped=12,
            ),
            ScheduleLine(
                name="cleanup",
                task="store.clean",
                when="@weekly",
                state="paused",
                fires=[self.now + 86_400],
                note=self._text("no worker knows this task"),
                missed=2,
                source="code",
            ),
        ]

    async def add_schedule(self, name: str, table: Mapping[str, Any], by: str) -> None:
        self.calls.append(("add_schedule", name, dict(table), by))

    async def change_schedule(self, name: str, action: str, by: str) -> None:
        self.calls.append(("change_schedule", name, action, by))

    async def preview_schedule(self, name: str, count: int, timezone: str) -> list[datetime]:
        return [datetime.fromtimestamp(self.now + 86_400 * each, UTC) for each in range(count)]

    async def fetch_page(self, url: str) -> FetchedPage:
        self.calls.append(("fetch_page", url))
        return FetchedPage(
            url=self._url("x"),
            status=200,
            ok=True,
            via=(),
            headers=(("content-type", "text/html"), (self._text("x-name"), self._text("value"))),
            elapsed=0.2,
            version=self._text("HTTP/1.1"),
            size=512,
            text=self._text("<!doctype html><title>Shop</title>"),
        )

    async def find_spiders(self) -> list[SpiderFile]:
        if self.is_empty:
            return []
        return [
            SpiderFile(
                path="shop-prices.py",
                name="shop-prices",
                doc=self._text("Prices of all products, once a day."),
                arguments=[
                    ArgumentField(name="country", type="str", help=self._text("Two letters, such as de")),
                    ArgumentField(name="max_price", type="float", default="1000", help="Skip more expensive products"),
                    ArgumentField(name="reviews", type="bool", default="false"),
                ],
            ),
            SpiderFile(path="news.py", name="news-archive", doc="Articles of three papers."),
            SpiderFile(path="broken.py", error=self._text("SyntaxError: invalid syntax (broken.py, line 3)")),
        ]

    async def start_crawl(self, request: StartForm, by: str) -> StartOutcome:
        self.calls.append(("start_crawl", request, by))
        return StartOutcome(crawl="shop-prices", store="local", pid=99, log=".uttu/logs/shop-prices.log")

    async def read_users(self) -> list[AccountRow]:
        if self.is_empty:
            return []
        return [
            AccountRow(name="wang", role=Role.ADMIN, created=self.now - 9e6),
            AccountRow(name=self._text("mia"), role=Role.OPERATOR, created=self.now - 4e6),
            AccountRow(name="grafana", role=Role.VIEWER, created=self.now - 1e6, is_token=True, start="uttu_8f"),
        ]

    async def add_user(self, name: str, password: str, role: Role, by: str) -> None:
        self.calls.append(("add_user", name, role, by))

    async def add_token(self, name: str, role: Role, by: str) -> str:
        self.calls.append(("add_token", name, role, by))
        return "uttu_8f2c"

    async def remove_token(self, name: str, by: str) -> None:
        self.calls.append(("remove_token", name, by))

    async def remove_user(self, name: str, by: str) -> None:
        self.calls.append(("remove_user", name, by))

    async def read_audit(self, limit: int, before: int) -> AuditPage:
        if self.is_empty:
            return AuditPage(entries=[])
        return AuditPage(
            entries=[
                AuditEntry(
                    position=3,
                    at=self.now - 60,
                    user="wang",
                    action="crawl.pause",
                    target="local/forum-threads",
                    address="10.0.0.9",
                ),
                AuditEntry(
                    position=2,
                    at=self.now - 900,
                    user=self._text("mia"),
                    action="bus.purge",
                    target=self._text("rabbitmq/indexer"),
                    address="10.0.0.12",
                ),
                AuditEntry(
                    position=1,
                    at=self.now - 9000,
                    user="",
                    action="login",
                    target="root",
                    address="203.0.113.9",
                    error="wrong password",
                ),
            ],
            next=1,
        )
