"""The data functions in the shapes that pages show: :class:`~uttu.api.pages.shapes.PageData` over a context."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from uttu.api.accounts import AccountRow, Role
from uttu.api.audit import AuditPage
from uttu.api.context import Context
from uttu.api.data import accounts, buses, control, crawls, jobs, schedules
from uttu.api.pages import shapes
from uttu.api.pages.words import make_alert
from uttu.api.problems import BadParameters
from uttu.errors import UttuError
from uttu.model.inspection import DeadQuery, LanePage, LaneQuery
from uttu.model.lease import LaneState
from uttu.operations import diagnosis, spiders
from uttu.operations.bus import BusDescription, Delivery, Group
from uttu.operations.explanation import CrawlExplanation
from uttu.operations.history import EventPage, EventQuery

T = TypeVar("T")
# Crawls of one server whose keys are measured.
_MOST_SIZED: Final = 20
# A page does not wait longer for a search. The live stream brings its result.
_SEARCH_PATIENCE: Final = 0.15
_PREPARED_SECONDS: Final = 300.0


def _as(kind: type[T], value: Any) -> T:
    """A value as a struct with the same names."""
    return msgspec.convert(value, kind, from_attributes=True)


class DashboardData:
    """What pages read and do."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._prepared: dict[tuple[str, str], float] = {}
        """When the hosts of a crawl were last read behind a page."""

    def list_stores(self) -> list[shapes.StoreHealth]:
        return crawls.list_stores(self._context)

    async def read_overview(self) -> shapes.OverviewContent:
        found = await crawls.read_overview(self._context)
        problems = [
            shapes.Alert(kind=shapes.AlertKind.STORE_AWAY, store=each.name, fields={"reason": each.error})
            for each in found.stores
            if each.error
        ]
        problems += [
            shapes.Alert(kind=shapes.AlertKind.BUS_AWAY, bus=each.name, fields={"reason": each.error})
            for each in found.buses
            if each.error
        ]
        problems += [make_alert(each.store, each.problem) for each in found.problems]
        return shapes.OverviewContent(
            crawls=found.crawls,
            stores=found.stores,
            buses=found.buses,
            problems=problems,
        )

    async def read_crawl(self, store: str, crawl: str) -> shapes.CrawlView:
        self._prepare_hosts(store, crawl)
        found = await crawls.read_crawl(self._context, store, crawl, lanes=False)
        if found.progress.rate:
            return found
        # Held lanes may be the reason.
        return await crawls.read_crawl(self._context, store, crawl)

    def _prepare_hosts(self, store: str, crawl: str) -> None:
        """Read hosts behind the first look at a crawl: sorting those of Redis would hold up the page of hosts."""
        now = time.monotonic()
        if now - self._prepared.get((store, crawl), -_PREPARED_SECONDS) >= _PREPARED_SECONDS:
            self._prepared = {key: at for key, at in self._prepared.items() if now - at < _PREPARED_SECONDS}
            self._prepared[store, crawl] = now
            self._context.run_behind(crawls.prepare_lanes(self._context, store, crawl))

    async def read_history(self, store: str, crawl: str, seconds: float, points: int) -> shapes.CrawlHistory:
        return await crawls.read_history(self._context, store, crawl, seconds, points)

    async def read_events(self, store: str, crawl: str, query: EventQuery) -> EventPage:
        return await crawls.read_event_page(self._context, store, crawl, query)

    async def read_lanes(self, store: str, crawl: str, query: LaneQuery) -> LanePage:
        return await crawls.read_lanes(self._context, store, crawl, query)

    def describe_wait(self, lane: LaneState) -> shapes.HostWait:
        found = diagnosis.describe_wait(lane)
        until = time.time() + found.seconds if found.seconds else 0.0
        return shapes.HostWait(kind=found.kind, until=until, text=found.text)

    async def read_dead_letters(self, store: str, crawl: str, query: DeadQuery) -> shapes.DeadLetters:
        return await crawls.read_dead_letters(self._context, store, crawl, query)

    async def explain(self, store: str, crawl: str, url: str) -> CrawlExplanation:
        return await crawls.search_url(self._context, store, crawl, url, _SEARCH_PATIENCE)

    async def read_items(self, store: str, crawl: str, limit: int, before: int, match: str) -> shapes.ItemPage:
        return await crawls.read_items(self._context, store, crawl, limit, before, match)

    async def read_workers(self, store: str, crawl: str) -> list[shapes.WorkerState]:
        return await crawls.read_workers(self._context, store, crawl)

    async def read_settings(self, store: str, crawl: str) -> list[shapes.SettingRow]:
        found = await crawls.read_settings(self._context, store, crawl)
        return [shapes.SettingRow(each.name, _to_text(each.value), str(each.source)) for each in found]

    async def change_state(self, store: str, crawl: str, action: str, by: str) -> None:
        await control.change_state(self._context, store, crawl, action, by)

    async def set_rate(self, store: str, crawl: str, host: str, delay: float | None, by: str) -> None:
        await control.set_rate(self._context, store, crawl, host, delay, by)

    async def push_urls(self, store: str, crawl: str, urls: Sequence[str], by: str) -> int:
        return (await control.push_urls(self._context, store, crawl, list(urls), by)).new

    async def retry_dead(self, store: str, crawl: str, kind: str, message: str, url: str, by: str) -> int:
        return (await control.retry_dead(self._context, store, crawl, kind, message, url, by)).revived

    async def drain_worker(self, store: str, crawl: str, worker: str, by: str) -> None:
        await control.drain_worker(self._context, store, crawl, worker, by)

    async def export_items(self, store: str, crawl: str, target: str, by: str) -> int:
        return sum((await control.export_items(self._context, store, crawl, target, by)).items.values())

    async def move_crawl(self, store: str, crawl: str, target: str, by: str) -> None:
        await control.move_crawl(self._context, store, crawl, target, by=by)

    async def read_buses(self) -> list[shapes.BusHealth]:
        return await buses.read_buses(self._context)

    async def describe_bus(self, bus: str) -> BusDescription:
        return await buses.describe_bus(self._context, bus)

    async def read_groups(self, bus: str) -> list[Group]:
        return await buses.read_groups(self._context, bus)

    async def read_lags(self, bus: str) -> list[shapes.LagPoint]:
        return await buses.read_lags(self._context, bus)

    async def read_keys(self, bus: str) -> list[shapes.KeyKind]:
        stores = [store for store in self._context.stores if crawls.is_same_server(self._context, store, bus)]
        found = []
        for store in stores:
            for name in (await self._context.read_names(store))[:_MOST_SIZED]:
                # A crawl that was removed in between is left out.
                with contextlib.suppress(UttuError):
                    found += await self._read_keys(store, name)
        return found

    async def read_crawl_keys(self, store: str, crawl: str) -> list[shapes.KeyKind]:
        return await self._read_keys(store, crawl) if crawls.has_keys(self._context, store) else []

    async def _read_keys(self, store: str, crawl: str) -> list[shapes.KeyKind]:
        return [
            shapes.KeyKind(crawl=crawl, kind=each.kind, keys=each.keys, bytes=each.bytes)
            for each in await crawls.read_keys(self._context, store, crawl)
        ]

    async def peek_messages(self, bus: str, group: str, limit: int, dead: bool) -> list[Delivery]:
        return await buses.peek_deliveries(self._context, bus, group, limit, dead)

    async def publish_message(
        self, bus: str, topic: str, payload: str, key: str, headers: Mapping[str, str], text: bool, by: str
    ) -> None:
        await buses.publish_message(self._context, bus, topic, payload, key, dict(headers), text, by)

    async def purge_group(self, bus: str, group: str, dead: bool, forget: bool, by: str) -> int:
        return (await buses.purge_group(self._context, bus, group, dead, forget, by)).count

    async def republish_dead(self, bus: str, group: str, by: str) -> int:
        return (await buses.republish_dead(self._context, bus, group, by=by)).count

    async def read_jobs(self) -> shapes.JobsView:
        found, has_answers = await jobs.read_jobs_soon(self._context)
        return msgspec.structs.replace(found, asking=not has_answers)

    async def read_tasks(self, query: shapes.TaskQuery) -> shapes.TaskListing:
        found = await jobs.read_tasks(self._context, query)
        return shapes.TaskListing(
            tasks=[_as(shapes.TaskView, row) for row in found.tasks], next=found.next, counts=found.states
        )

    async def read_task(self, id: str) -> shapes.TaskView:
        found = await jobs.read_task(self._context, id)
        row, state = _as(shapes.TaskView, found.row), found.state
        if state is None:
            return row
        has_failed = state.state in ("FAILURE", "RETRY", "REVOKED")
        shown = _to_text(state.info)
        return msgspec.structs.replace(
            row,
            state=state.state,
            result=row.result or ("" if has_failed else shown),
            exception=row.exception or (shown if has_failed else ""),
            traceback=state.traceback or row.traceback,
            progress=_find_progress(state.info),
        )

    async def send_task(self, name: str, args: str, kwargs: str, by: str) -> str:
        try:
            words = msgspec.json.decode(args or "[]", type=list[Any])
            named = msgspec.json.decode(kwargs or "{}", type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise BadParameters(f"The arguments are not JSON: {error}") from error
        return (await jobs.send_task(self._context, name, words, named, by=by)).id

    async def revoke_task(self, id: str, terminate: bool, by: str) -> None:
        await jobs.revoke_task(self._context, id, terminate, by)

    async def resize_pool(self, worker: str, change: int, by: str) -> None:
        await jobs.resize_pool(self._context, worker, change, by)

    async def shut_down_worker(self, worker: str, by: str) -> None:
        await jobs.shut_down_worker(self._context, worker, by)

    async def read_schedules(self, hours: float) -> list[shapes.ScheduleLine]:
        return [
            shapes.ScheduleLine(
                name=each.name,
                task=" ".join([each.task, *map(str, each.args)]),
                when=each.text,
                state=each.state,
                source=each.source,
                next=each.next.timestamp() if each.next else 0.0,
                fires=[at.timestamp() for at in each.fires],
                last=each.last.timestamp() if each.last else 0.0,
                last_task=each.last_task or "",
                last_result=each.last_state,
                sent=each.sent,
                skipped=each.skipped,
                missed=each.missed,
                note=each.note,
            )
            for each in await schedules.read_schedules(self._context, hours)
        ]

    async def add_schedule(self, name: str, table: Mapping[str, Any], by: str) -> None:
        await schedules.add_schedule(self._context, name, dict(table), by=by)

    async def change_schedule(self, name: str, action: str, by: str) -> None:
        await schedules.change_schedule(self._context, name, action, by)

    async def preview_schedule(self, name: str, count: int, timezone: str) -> list[datetime]:
        return await schedules.preview_schedule(self._context, name, count, timezone)

    async def fetch_page(self, url: str) -> shapes.FetchedPage:
        return await control.fetch_page(self._context, url)

    async def find_spiders(self) -> list[shapes.SpiderFile]:
        return [
            shapes.SpiderFile(
                path=each.file,
                name=each.name,
                doc=each.description,
                arguments=[
                    shapes.ArgumentField(name=argument.name, type=_TYPES[argument.kind], default=argument.default)
                    for argument in each.arguments
                ],
                error=each.error,
            )
            for each in await schedules.find_spiders(self._context)
        ]

    async def start_crawl(self, request: shapes.StartForm, by: str) -> shapes.StartOutcome:
        if request.schedule:
            await schedules.add_schedule(self._context, request.crawl or request.file, _make_table(request), by=by)
            return shapes.StartOutcome(crawl="", store=request.store)
        wanted = spiders.StartRequest(
            file=request.file,
            arguments=request.arguments,
            settings=request.settings,
            outputs=tuple(request.outputs),
            workers=request.workers,
            crawl=request.crawl,
            fresh=request.fresh,
        )
        found = await schedules.start_crawl(self._context, wanted, request.store, by)
        store = request.store or next(iter(self._context.stores))
        return shapes.StartOutcome(crawl=found.crawl, store=store, pid=found.pid, log=found.log)

    async def read_users(self) -> list[AccountRow]:
        return await accounts.read_users(self._context)

    async def add_user(self, name: str, password: str, role: Role, by: str) -> None:
        await accounts.add_user(self._context, name, password, role, by)

    async def add_token(self, name: str, role: Role, by: str) -> str:
        return (await accounts.add_token(self._context, name, role, by)).token

    async def remove_user(self, name: str, by: str) -> None:
        await accounts.remove_user(self._context, name, by)

    async def remove_token(self, name: str, by: str) -> None:
        await accounts.remove_token(self._context, name, by)

    async def read_audit(self, limit: int, before: int) -> AuditPage:
        return await accounts.read_audit(self._context, limit, before)


_TYPES: Final = {
    spiders.ArgumentKind.TEXT: "str",
    spiders.ArgumentKind.INTEGER: "int",
    spiders.ArgumentKind.NUMBER: "float",
    spiders.ArgumentKind.BOOLEAN: "bool",
    spiders.ArgumentKind.JSON: "json",
}


def _make_table(request: shapes.StartForm) -> dict[str, Any]:
    """The schedule of a crawl: a crontab line, or an interval in seconds."""
    given = {
        "output": request.outputs,
        "arguments": request.arguments,
        "settings": request.settings,
        "workers": request.workers if request.workers > 1 else 0,
        "crawl": request.crawl,
        "fresh": request.fresh,
    }
    when = request.schedule.strip()
    trigger = {"every": float(when)} if when.replace(".", "", 1).isdigit() else {"crontab": when}
    kwargs = {name: value for name, value in given.items() if value}
    return {"task": "uttu.crawl", "args": [request.file], "kwargs": kwargs, "overlap": "skip", **trigger}


def _find_progress(info: Any) -> float | None:
    share = info.get("share", info.get("progress")) if isinstance(info, dict) else None
    return float(share) if isinstance(share, int | float) and 0 <= share <= 1 else None


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
