"""Killing a crawl in the middle, all its processes at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from weft import assembly, launch
from weft.cli.crawls import opened
from weft.engine.stats import Report
from weft.errors import StoreError, WeftError
from weft.frontier.depot import Depot, Store
from weft.model.url import fingerprint
from weft.testing.site import SiteProcess

_LOOK_SECONDS = 0.1
_PATIENCE = 60.0
# A page is settled within a moment of its answer, so what is not is among these.
_LAST_REQUESTS = 500


class Killed(msgspec.Struct, frozen=True):
    """How a crawl stood when it was killed. ``in_flight``: host and path of what was asked for, but not settled."""

    processes: int
    done: int
    leased: int
    in_flight: frozenset[tuple[str, str]]


def kill_at(child: subprocess.Popen[bytes], folder: Path, pages: int, site: SiteProcess) -> Killed:
    """Let the crawl that ``child`` runs in ``folder`` do so many pages, then kill it and its workers with -9.

    :raises WeftError: it ended by itself, or does not get that far.
    """
    try:
        return asyncio.run(_kill_at(child, folder, pages, site))
    except BaseException:
        child.kill()
        raise
    finally:
        child.wait()


async def _kill_at(child: subprocess.Popen[bytes], folder: Path, pages: int, site: SiteProcess) -> Killed:
    depot = await assembly.open_depot("", folder / launch.FOLDER)
    async with opened(depot, await _crawl(child, depot)) as store:
        began = time.monotonic()
        while (await store.frontier.counts()).done < pages:
            if child.poll() is not None or time.monotonic() - began > _PATIENCE:
                raise WeftError("the demo's crawl did not get as far as it should")
            await asyncio.sleep(_LOOK_SECONDS)
        reports = [msgspec.json.decode(report, type=Report) for _, report in (await store.ledger.reports()).values()]
        processes = {child.pid, *(report.pid for report in reports)}
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        child.wait()
        counts = await store.frontier.counts()
        return Killed(len(processes), counts.done, counts.leased, await _in_flight(store, site))


async def _in_flight(store: Store, site: SiteProcess) -> frozenset[tuple[str, str]]:
    """Of the last requests the site has seen, those whose pages are still leased."""
    found = set()
    for record in site.records()[-_LAST_REQUESTS:]:
        url = f"{site.site.scheme}://{record.host}:{urlsplit(site.url).port}{record.path}"
        if (await store.inspector.trace(fingerprint(url))).state == "leased":
            found.add((record.host, record.path))
    return frozenset(found)


async def _crawl(child: subprocess.Popen[bytes], depot: Depot) -> str:
    """The one crawl of the depot, once it is there."""
    while child.poll() is None:
        for name in await depot.names():
            # Between the file and what is in it lies a moment.
            with contextlib.suppress(StoreError):
                async with opened(depot, name):
                    return name
        await asyncio.sleep(_LOOK_SECONDS)
    raise WeftError("the demo's crawl could not be started; its message is above")
