"""Schedules of tasks and crawls, the spiders of the project, and starting a crawl."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec

from uttu.api.context import CHANGE_SECONDS, Context
from uttu.api.data.jobs import read_states, require_broker
from uttu.api.problems import BadParameters
from uttu.errors import UttuError
from uttu.operations import spiders
from uttu.operations.spiders import SpiderInfo, StartedCrawl, StartRequest

if TYPE_CHECKING:
    from uttu.jobs.schedules.catalog import ScheduleCatalog

_WHAT: Final = "The store of schedules"
_SPIDER_SECONDS: Final = 60.0
_APPEAR_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1
# Times of one schedule on the time line, and the hours that it shows.
_FIRES: Final = 200
Hours = Annotated[float, msgspec.Meta(gt=0, le=31 * 24)]
T = TypeVar("T")
ScheduleName = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as people see it. ``text`` says when it runs, ``source`` where it is defined.

    ``fires``: its next times. ``last_state``: the state of its last task, if results are stored.
    """

    name: str
    state: str
    text: str
    task: str
    source: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    next: datetime | None = None
    last: datetime | None = None
    last_task: str | None = None
    last_state: str = ""
    sent: int = 0
    skipped: int = 0
    missed: int = 0
    note: str = ""
    fires: list[datetime] = []


class ScheduleChange(msgspec.Struct, frozen=True):
    """What was done to a schedule. ``task``: the id of a task that was sent."""

    name: str
    action: str
    next: datetime | None = None
    task: str = ""


@contextmanager
def _open(context: Context) -> Iterator[ScheduleCatalog]:
    from uttu.jobs.schedules.catalog import open_catalog

    with open_catalog(require_broker(context)) as catalog:
        yield catalog


async def _change(context: Context, change: Callable[[ScheduleCatalog], T]) -> T:
    def run() -> T:
        with _open(context) as catalog:
            return change(catalog)

    return await context.change(_WHAT, asyncio.to_thread(run), CHANGE_SECONDS)


async def read_schedules(context: Context, hours: Hours = 24.0) -> list[ScheduleView]:
    """All schedules: from code, from uttu.toml, and added ones. ``hours``: how far ahead their next times go."""
    return await context.read_in_thread(("schedules", hours), _WHAT, lambda: _read_schedules(context, hours))


def _read_schedules(context: Context, hours: float) -> list[ScheduleView]:
    from uttu.jobs.schedules.catalog import list_schedules, list_upcoming

    with _open(context) as catalog:
        fires: dict[str, list[datetime]] = {}
        for run in list_upcoming(catalog, hours, _FIRES):
            fires.setdefault(run.name, []).append(run.at)
        found = list_schedules(catalog)
    states = read_states(context, [row.last_task for row in found if row.last_task])
    views = []
    for row in found:
        view = msgspec.convert(row, ScheduleView, from_attributes=True)
        state = states.get(row.last_task or "", "")
        views.append(msgspec.structs.replace(view, fires=fires.get(row.name, []), last_state=state))
    return views


async def add_schedule(
    context: Context,
    name: ScheduleName,
    table: dict[str, Any],
    replace: bool = False,
    remote: bool = False,
    by: str = "",
) -> ScheduleChange:
    """Run a task or a crawl repeatedly. ``table``: the fields of ``[jobs.schedule.NAME]`` in uttu.toml.

    :raises ConfigError: a field is wrong, a worker would not accept the crawl, or the name is taken.
    """
    is_crawl = table.get("task") == "uttu.crawl"
    if is_crawl and not (table.get("args") and isinstance(table["args"], list)):
        raise BadParameters("The task uttu.crawl needs the spider file as its first argument")

    def add(catalog: ScheduleCatalog) -> ScheduleChange:
        kept = catalog.add(name, table, replace=replace, remote=remote, is_crawl=is_crawl)
        return ScheduleChange(name, "add", kept.state.next)

    return await _change(context, add)


async def change_schedule(context: Context, name: ScheduleName, action: str, by: str = "") -> ScheduleChange:
    """Pause or resume a schedule, run it now, or remove it.

    :raises ConfigError: no schedule has this name, or it can't be removed.
    """

    def change(catalog: ScheduleCatalog) -> ScheduleChange:
        match action:
            case "pause":
                catalog.pause(name)
            case "resume":
                return ScheduleChange(name, action, catalog.resume(name).state.next)
            case "run":
                return ScheduleChange(name, action, task=catalog.send_now(name))
            case "remove":
                catalog.remove(name)
            case _:
                raise BadParameters(f"There is no action {action!r:.50}: say pause, resume, run or remove")
        return ScheduleChange(name, action)

    return await _change(context, change)


async def preview_schedule(
    context: Context,
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=500)],
    count: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10,
    timezone: str = "UTC",
) -> list[datetime]:
    """The next times of a schedule, or of a crontab line."""
    from uttu.jobs.schedules.catalog import is_crontab, preview_crontab

    if is_crontab(name):
        return preview_crontab(name, timezone, count)

    def read() -> list[datetime]:
        with _open(context) as catalog:
            return catalog.preview(name, count)

    return await context.read_in_thread(("preview", name, count), _WHAT, read)


async def find_spiders(context: Context) -> list[SpiderInfo]:
    """The spiders in the Python files of the project's folder, with the arguments that they declare."""
    return await context.read(
        "spiders", "A spider", lambda: spiders.find_spiders(context.folder), seconds=5.0, limit=_SPIDER_SECONDS
    )


async def start_crawl(context: Context, request: StartRequest, store: str = "", by: str = "") -> StartedCrawl:
    """Start a crawl in the background, in the project's store or in another one of the dashboard.

    :raises ConfigError: its file, an output or a setting is not allowed or not usable.
    """
    limits = context.confinement
    limits.check_spider(request.file)
    limits.check_settings(request.settings)
    for output in request.outputs:
        limits.check_output(output)
    if request.overwrite:
        raise BadParameters("A crawl that is started here does not overwrite files of other programs")
    if store and (url := context.store_url(store)):
        request = msgspec.structs.replace(request, settings=request.settings | {"frontier": url})
    started = await context.change("The new crawl", spiders.start_crawl(request, context.folder), _SPIDER_SECONDS)
    await _wait_for_crawl(context, store or next(iter(context.stores)), started.crawl)
    return started


async def _wait_for_crawl(context: Context, store: str, crawl: str) -> None:
    """Wait until a new crawl is in its store, so that its page can be read. On a busy machine this takes seconds."""
    with contextlib.suppress(TimeoutError, UttuError):
        async with asyncio.timeout(_APPEAR_SECONDS):
            while crawl not in await context.read_names(store):
                await asyncio.sleep(_POLL_SECONDS)
                context.cache.clear()
