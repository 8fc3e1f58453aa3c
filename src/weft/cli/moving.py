"""Moving a crawl from one depot to another.

The new one says of itself that it is not whole until it is, and the old one says where it went, in this order: the
old is marked before the new may be used. So however a move ends, the crawl can't go on in two places, and a move
that was cut short is done again with the same command.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from weft import launch
from weft.cli.crawls import (
    FRESH_SECONDS,
    UNREADABLE,
    Standing,
    choose,
    connected,
    opened,
    place_of,
    standing_of,
    survey,
)
from weft.cli.words import number
from weft.engine.states import State
from weft.errors import StoreError, WeftError
from weft.frontier.depot import Depot, Store
from weft.frontier.moving import Batch, Rest
from weft.model import Counts

_POLL_SECONDS = 0.5


async def move_crawl(source: str, target: str, crawl: str, *, replace: bool) -> str:
    """Move it; returns what to say.

    :raises WeftError: it is not at rest, or there is one of its name already.
    """
    async with connected(frontier_at(source)) as here, connected(frontier_at(target)) as there:
        name = await _named(here, crawl)
        standing = await _at_rest(here, name)
        there_reason = await _reason(there, name)
        if standing.reason.startswith(launch.MOVED) and not (there_reason or "").startswith(launch.MOVING):
            raise WeftError(f"crawl {name!r} was {standing.reason} already")
        if there_reason is not None and not replace and not there_reason.startswith((launch.MOVED, launch.MOVING)):
            raise WeftError(f"there is a crawl {name!r} {place_of(there)} already; --replace forgets it")
        if there_reason is not None:
            await _at_rest(there, name)
        async with here.supervise(name), there.supervise(name):
            return await _move(here, there, standing)


def frontier_at(place: str) -> str:
    """The URL of a frontier as a person names it: a URL, or a folder in which crawls were started."""
    if re.match(r"[a-z][a-z0-9+.-]*:", place, re.IGNORECASE):
        return place
    folder = Path(place).expanduser().resolve()
    folder = folder.parent if folder.name == launch.FOLDER.name else folder
    return "" if folder == Path.cwd() else f"sqlite:{folder}"


async def _named(depot: Depot, crawl: str) -> str:
    if crawl:
        return (await choose(depot, crawl))[0]
    found = [each for each in await survey(depot) if each.state != UNREADABLE]
    staying = [each.name for each in found if not each.reason.startswith(launch.MOVED)]
    if len(staying) > 1:
        raise WeftError(f"there are several crawls {place_of(depot)}: say which with --crawl: {', '.join(staying)}")
    return staying[0] if staying else (await choose(depot))[0]


async def _at_rest(depot: Depot, name: str) -> Standing:
    """Waits for a moment for workers that have ended, but whose last words are fresh.

    :raises WeftError: somebody works on it.
    """
    for _ in range(round(FRESH_SECONDS / _POLL_SECONDS) + 1):
        async with opened(depot, name) as store:
            standing = await standing_of(depot, name, store)
        if not standing.alive:
            return standing
        if standing.supervised or standing.state == State.RUNNING:
            break
        await asyncio.sleep(_POLL_SECONDS)
    raise WeftError(f"workers are at crawl {name!r}; stop it first: {standing.words('stop', name)}")


async def _reason(depot: Depot, name: str) -> str | None:
    """Why the crawl of this name is as it is; None if there is none."""
    if name not in await depot.names():
        return None
    async with opened(depot, name) as store:
        return (await store.ledger.facts()).get("reason", "")


async def _move(here: Depot, there: Depot, standing: Standing) -> str:
    name, rules = standing.name, launch.rules_of(standing.facts)
    async with contextlib.AsyncExitStack() as stack:
        old = await here.open(name, rules)
        stack.push_async_callback(old.frontier.close)
        ended = standing.state in (State.FINISHED, State.LIMITED)
        if not ended:
            # Of a crawl that counts as running, workers may come to take part.
            await old.ledger.note(state=State.STOPPED, reason="a move was begun")
        counts = await _settled(old)
        try:
            new = await there.create(name, rules)
            stack.push_async_callback(new.frontier.close)
            await _carry(old, new, counts, f"{launch.MOVING}{_place(here)}")
            if (found := await new.frontier.counts()) != counts:
                raise StoreError(f"{_place(there)} took in {found} instead of {counts}; {_place(here)} is as it was")
            await there.keep(name)
        except BaseException:
            await stack.aclose()
            await there.restore(name)
            raise
        await old.ledger.note(state=State.STOPPED, reason=f"{launch.MOVED}{_place(there)}")
        state, reason = (standing.state, standing.reason) if ended else (State.STOPPED, f"moved from {_place(here)}")
        await new.ledger.note(state=state, reason=reason)
        moved = await standing_of(there, name, new)
    left, made = number(counts.work, "page"), number(counts.items, "item")
    said = f"{name} is {launch.MOVED}{_place(there)}, with {left} to do and {made}"
    if state == State.FINISHED:
        return said
    # Without --resume, a crawl that ended at a limit would start anew.
    return f"{said}. Go on with: {moved.command()}{' --resume' if state == State.LIMITED else ''}"


async def _settled(store: Store) -> Counts:
    """The counts, once the leases of workers that are gone have ended.

    :raises WeftError: there are some that have not.
    """
    await store.frontier.lease(0, f"move-{os.getpid()}")
    counts = await store.frontier.counts()
    if counts.leased:
        raise WeftError(
            f"{number(counts.leased, 'page')} of workers that are gone are leased still. "
            "Their leases end within a minute, or what lease_seconds says; try again then"
        )
    return counts


async def _carry(old: Store, new: Store, counts: Counts, reason: str) -> None:
    """Pour and fill. What arrives says of itself that it is on its way."""
    await new.ledger.note(state=State.STOPPED, reason=reason)
    async for batch in _with_progress(old.mover.pour(), counts):
        if isinstance(batch, Rest):
            facts = batch.facts | {"state": State.STOPPED, "reason": reason}
            batch = msgspec.structs.replace(batch, facts=facts)
        await new.mover.fill(batch)


async def _with_progress(batches: AsyncIterator[Batch], counts: Counts) -> AsyncIterator[Batch]:
    """The same batches, with a line about them on a terminal."""
    total = counts.seen + counts.work + counts.dead + counts.items
    done, shown = 0, sys.stderr.isatty()
    async for batch in batches:
        yield batch
        done += 0 if isinstance(batch, Rest) else len(getattr(batch, batch.__struct_fields__[0]))
        if shown:
            print(f"\rmoving: {min(99, 100 * done // max(total, 1))} %", end="", file=sys.stderr, flush=True)
    if shown:
        print("\r" + " " * 16 + "\r", end="", file=sys.stderr, flush=True)


def _place(depot: Depot) -> str:
    return depot.address or f"sqlite:{Path.cwd()}"
