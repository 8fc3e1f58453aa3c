"""Move a crawl from one frontier to another, or rename what Weft left behind.

The copy is marked as incomplete until it is whole, and the original is marked as moved before the copy may be used.
So however a move ends, the crawl can't go on in two places, and a move that was cut short is done again with the same
call.

:func:`rename_former` gives the folder or the Redis keys of Weft, as Uttu was called before, their new names.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from uttu import former
from uttu.clients.addresses import mask_password
from uttu.errors import StoreError, UsageError, UttuError
from uttu.frontier.catalog import CrawlCatalog, CrawlStore
from uttu.frontier.transfer import FinalBatch
from uttu.model import Counts
from uttu.model.crawl import CrawlState, Reason, ReasonKind, Rules
from uttu.model.facts import encode_facts
from uttu.operations import format_count
from uttu.operations.crawls import (
    WORKER_TIMEOUT_SECONDS,
    BrokenState,
    CrawlStatus,
    connect_frontier,
    describe_frontier,
    find_crawl,
    list_crawls,
    open_store,
    read_status,
    record_action,
)
from uttu.settings import DATA_FOLDER, SETTINGS_FILE

_POLL_SECONDS = 0.5

MoveProgress = Callable[[float], None]
"""Receives the share of a crawl's data that is copied, from 0 to 1."""


async def move_crawl(
    source: str,
    target: str,
    crawl: str,
    *,
    replace: bool,
    progress: MoveProgress = lambda share: None,
    by: str = "",
) -> str:
    """Move a crawl; returns the message to print.

    :param replace: Replace a crawl with the same name at the target.
    :param progress: Called during the copy with the share that is copied.
    :param by: Who does it, for the history of the crawl at both places.
    :raises UttuError: workers are at the crawl, or the target has a crawl with this name.
    """
    async with connect_frontier(parse_frontier(source)) as here, connect_frontier(parse_frontier(target)) as there:
        name = await _resolve_crawl(here, crawl)
        standing = await _wait_until_idle(here, name)
        other = await _read_reason(there, name)
        if standing.reason.kind is ReasonKind.MOVED and (other is None or other.kind is not ReasonKind.MOVING):
            raise UttuError(f"Crawl {name!r} was already {standing.reason}")
        if other is not None and not replace and other.kind not in (ReasonKind.MOVED, ReasonKind.MOVING):
            raise UttuError(f"There is already a crawl {name!r} {describe_frontier(there)}. Replace it with --replace")
        if other is not None:
            await _wait_until_idle(there, name)
        async with here.supervise(name), there.supervise(name):
            return await _move(here, there, standing, progress, by)


def parse_frontier(place: str) -> str:
    """The URL of a frontier, from a URL or from a folder in which crawls were started."""
    if re.match(r"[a-z][a-z0-9+.-]*:", place, re.IGNORECASE):
        return place
    folder = Path(os.path.expanduser(place)).resolve()
    folder = folder.parent if folder.name == DATA_FOLDER.name else folder
    return "" if folder == Path.cwd() else f"sqlite:{folder}"


async def _resolve_crawl(catalog: CrawlCatalog, crawl: str) -> str:
    if crawl:
        return (await find_crawl(catalog, crawl))[0]
    found = [each for each in await list_crawls(catalog) if each.state is not BrokenState.UNREADABLE]
    staying = [each.name for each in found if each.reason.kind is not ReasonKind.MOVED]
    if len(staying) > 1:
        raise UttuError(
            f"There are several crawls {describe_frontier(catalog)}. Choose one with --crawl: {', '.join(staying)}"
        )
    return staying[0] if staying else (await find_crawl(catalog))[0]


async def _wait_until_idle(catalog: CrawlCatalog, name: str) -> CrawlStatus:
    """Wait up to ``WORKER_TIMEOUT_SECONDS``, because the last reports of workers that ended still look recent.

    :raises UttuError: the crawl is running.
    """
    for _ in range(round(WORKER_TIMEOUT_SECONDS / _POLL_SECONDS) + 1):
        async with open_store(catalog, name) as store:
            standing = await read_status(catalog, name, store)
        if not standing.alive:
            return standing
        if standing.supervised or standing.state == CrawlState.RUNNING:
            break
        await asyncio.sleep(_POLL_SECONDS)
    raise UttuError(f"Crawl {name!r} has workers. Stop it first: {standing.words('stop', name)}")


async def _read_reason(catalog: CrawlCatalog, name: str) -> Reason | None:
    """The reason in the ledger of a crawl; None if the crawl does not exist."""
    if name not in await catalog.names():
        return None
    async with open_store(catalog, name) as store:
        return (await store.ledger.facts()).reason


async def _move(here: CrawlCatalog, there: CrawlCatalog, standing: CrawlStatus, progress: MoveProgress, by: str) -> str:
    name, rules = standing.name, standing.facts.rules or Rules()
    async with contextlib.AsyncExitStack() as stack:
        old = await here.open(name, rules)
        stack.push_async_callback(old.frontier.close)
        ended = standing.facts.state if standing.state in (CrawlState.FINISHED, CrawlState.LIMITED) else None
        if ended is None:
            # Workers may join a crawl that counts as running.
            await old.ledger.note(state=CrawlState.STOPPED, reason=Reason("a move was begun"))
        counts = await _check_no_leases(old)
        try:
            new = await there.create(name, rules)
            stack.push_async_callback(new.frontier.close)
            await _copy(old, new, counts, Reason(_describe_place(here), ReasonKind.MOVING), progress)
            if (found := await new.frontier.counts()) != counts:
                raise StoreError(
                    f"{_describe_place(there)} received {found} instead of {counts}; "
                    f"{_describe_place(here)} is unchanged"
                )
            await there.keep(name)
        except BaseException:
            await stack.aclose()
            await there.restore(name)
            raise
        await old.ledger.note(state=CrawlState.STOPPED, reason=Reason(_describe_place(there), ReasonKind.MOVED))
        state, reason = CrawlState.STOPPED, Reason(f"moved from {_describe_place(here)}")
        if ended is not None:
            state, reason = ended, standing.reason
        await new.ledger.note(state=state, reason=reason)
        for store in (old, new):
            await record_action(store, by, "move", source=_describe_place(here), target=_describe_place(there))
        moved = await read_status(there, name, new)
    left, made = format_count(counts.work, "page"), format_count(counts.items, "item")
    said = f"{name} is moved to {_describe_place(there)}, with {left} to do and {made}"
    if state == CrawlState.FINISHED:
        return said
    # Without --resume, a crawl that ended at a limit would start from the beginning.
    return f"{said}. Resume it with: {moved.command()}{' --resume' if state == CrawlState.LIMITED else ''}"


async def _check_no_leases(store: CrawlStore) -> Counts:
    """Let the frontier expire old leases; returns the counts.

    :raises UttuError: some leases have not expired yet.
    """
    await store.frontier.lease(0, f"move-{os.getpid()}")
    counts = await store.frontier.counts()
    if counts.leased:
        raise UttuError(
            f"{format_count(counts.leased, 'page')} of workers that are gone are still leased. "
            "The leases expire after lease_seconds, a minute by default. Try again then"
        )
    return counts


async def _copy(old: CrawlStore, new: CrawlStore, counts: Counts, reason: Reason, progress: MoveProgress) -> None:
    """Copy all batches. ``reason`` marks the copy as incomplete until the caller notes its final state."""
    await new.ledger.note(state=CrawlState.STOPPED, reason=reason)
    total = max(counts.seen + counts.work + counts.dead + counts.items, 1)
    done = 0
    async for batch in old.transfer.dump():
        if isinstance(batch, FinalBatch):
            mark = encode_facts({"state": CrawlState.STOPPED, "reason": reason})
            batch = msgspec.structs.replace(batch, facts=batch.facts | mark)
        else:
            done += len(getattr(batch, batch.__struct_fields__[0]))
        await new.transfer.fill(batch)
        progress(min(done / total, 1.0))


def _describe_place(catalog: CrawlCatalog) -> str:
    return catalog.address or f"sqlite:{Path.cwd()}"


class Renamed(msgspec.Struct, frozen=True, kw_only=True):
    """What was renamed at ``place``. Names are those of files, crawls, apps (for their schedules) and buses."""

    place: str
    files: tuple[str, ...] = ()
    crawls: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    buses: tuple[str, ...] = ()
    keys: int = 0


async def rename_former(place: str) -> Renamed:
    """Rename what Weft left in a folder, or on a Redis server or cluster. If it is cut short, call it again.

    :raises UttuError: a process of Weft still uses it, or the new names are taken.
    :raises UsageError: ``place`` is neither.
    """
    url = parse_frontier(place)
    scheme, _, rest = url.partition(":")
    if scheme.lower() in ("", "sqlite"):
        return rename_former_folder(Path(rest.removeprefix("//")).expanduser())
    if not scheme.lower().startswith("redis"):
        raise UsageError(f"{mask_password(url)}: give a folder, or the URL of a Redis server")
    return await _rename_former_keys(url)


def rename_former_folder(folder: Path) -> Renamed:
    """Rename ``.weft`` and ``weft.toml`` in a folder.

    :raises UttuError: a crawl or the jobs' server runs there, or the new names are taken.
    """
    from uttu.file_locks import is_file_locked

    names = {former.FOLDER: DATA_FOLDER.name, former.SETTINGS_FILE: SETTINGS_FILE}
    found = {folder / old: folder / new for old, new in names.items() if (folder / old).exists()}
    for old, new in found.items():
        if new.exists():
            raise UttuError(f"There is {old} and {new}: remove one of them, or move by hand what you need")
    data = folder / former.FOLDER
    for lock in (*data.glob("crawls/*.supervisor"), *data.glob("jobs/server.lock")):
        if is_file_locked(lock):
            raise UttuError(f"A process of Weft uses {data} ({lock.relative_to(data)} is locked): stop it first")
    for old, new in found.items():
        old.rename(new)
    return Renamed(place=str(folder), files=tuple(old.name for old in found))


async def _rename_former_keys(url: str) -> Renamed:
    from uttu.bus.redis.connection import BUS_OPTION_NAMES
    from uttu.clients.redis.address import make_clients
    from uttu.clients.redis.connection import close_clients
    from uttu.clients.redis.errors import REDIS_ERRORS, call_driver, explain_error
    from uttu.clients.redis.rename import rename_keys

    place = mask_password(url)
    client, beside = make_clients(url, BUS_OPTION_NAMES)
    try:
        done = await call_driver(rename_keys(client))
    except REDIS_ERRORS as error:
        raise StoreError(explain_error(place, error)) from error
    finally:
        await close_clients(client, beside)
    return Renamed(place=place, **msgspec.structs.asdict(done))
