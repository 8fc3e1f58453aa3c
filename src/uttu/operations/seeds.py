"""Add start URLs to a crawl, from arguments, a file or a pipe.

Lines of a pipe are put as they arrive, so a program can feed a crawl as long as it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from uttu.engine.seeds import parse_request
from uttu.errors import UttuError
from uttu.fetch.resolver import check_proxy, look_up_addresses
from uttu.frontier.catalog import CrawlStore
from uttu.model import Request
from uttu.model.crawl import CrawlState, Rules
from uttu.model.inspection import LaneFilter, LaneQuery
from uttu.model.url import host_of, hostname_of
from uttu.operations import Report
from uttu.operations.control import check_not_moved
from uttu.operations.crawls import (
    CrawlStatus,
    connect_configured_frontier,
    find_crawl,
    open_store,
    read_status,
    record_action,
)
from uttu.operations.fetch import parse_web_url
from uttu.operations.lines import describe_source, open_source, read_lines
from uttu.policy.scope import is_private_address, is_private_host

# Names that are looked up at the same time, and for how long.
_LOOKUPS: Final = 200
_LOOKUP_SECONDS: Final = 3.0


class PushResult(msgspec.Struct):
    """How many URLs were new, known and invalid. ``then`` says what happens to the new ones."""

    crawl: str
    then: str
    new: int = 0
    known: int = 0
    bad: int = 0


async def push_seeds(
    crawl: str,
    frontier: str,
    urls: Sequence[str],
    file: str,
    report: Report,
    *,
    entries: Sequence[bytes] = (),
    confined: bool = False,
    public: bool = False,
    by: str = "",
    folder: Path = Path(),
) -> PushResult:
    """Put all requests into the frontier; invalid entries are reported.

    :param urls: URLs as a person types them.
    :param file: A file with a URL, or a request as a JSON object, on each line; ``-`` for standard input.
    :param entries: The same as the lines of a file.
    :param confined: The entries come from a message, and may not name a proxy in a private network.
    :param public: Refuse URLs in a private network, unless the crawl has pages of that host already or its setting
        ``private`` is on. Start URLs open a private host for a crawl, so not everybody may push one.
    :param by: Who does it, for the history of the crawl.
    :raises UttuError: the crawl has finished or was moved, or the file can't be read.
    """
    async with connect_configured_frontier(frontier, folder) as catalog, contextlib.AsyncExitStack() as stack:
        name, remark = await find_crawl(catalog, crawl, folder)
        if remark:
            report(remark)
        async with open_store(catalog, name) as store:
            standing = await read_status(catalog, name, store, folder)
        pushed = PushResult(name, _describe_next(standing))
        source = stack.enter_context(open_source(file)) if file else None
        # Open it with the crawl's own rules, which set the order of requests and the pace of new hosts.
        store = await catalog.open(name, standing.facts.rules or Rules())
        stack.push_async_callback(store.frontier.close)

        guard = _PrivateGuard(store, standing) if public else None

        async def put(requests: list[Request]) -> None:
            if guard is not None:
                requests = await guard.filter(requests, pushed, report)
            new = await store.frontier.put(requests) if requests else 0
            pushed.new += new
            pushed.known += len(requests) - new

        async def put_lines(lines: Sequence[bytes], where: str, before: int) -> None:
            await put([each async for each in _parse_lines(lines, where, before, pushed, report, confined)])

        await put(list(_parse_urls(urls, pushed, report)))
        await put_lines(entries, "the entries", 0)
        if source is not None:
            number = 0
            async for lines in read_lines(source):
                await put_lines(lines, describe_source(file), number)
                number += len(lines)
        await record_action(store, by, "push", new=pushed.new, known=pushed.known)
    return pushed


class _PrivateGuard:
    """Refuses start URLs in a private network that the crawl does not fetch from already."""

    def __init__(self, store: CrawlStore, standing: CrawlStatus) -> None:
        self._store = store
        self._is_off = any(each.name == "private" and each.value is True for each in standing.facts.settings)
        self._allowed: dict[str, bool] = {}

    async def filter(self, requests: list[Request], pushed: PushResult, report: Report) -> list[Request]:
        if self._is_off:
            return requests
        hosts = list({host_of(each.url) for each in requests} - self._allowed.keys())
        for first in range(0, len(hosts), _LOOKUPS):
            chunk = hosts[first : first + _LOOKUPS]
            self._allowed |= dict(zip(chunk, await asyncio.gather(*map(self._is_allowed, chunk)), strict=True))
        kept = [each for each in requests if self._allowed[host_of(each.url)]]
        pushed.bad += len(requests) - len(kept)
        for host in {host_of(each.url) for each in requests} - {host_of(each.url) for each in kept}:
            report(f"{host!r:.200} is in a private network. Push it in a terminal with: uttu push")
        return kept

    async def _is_allowed(self, host: str) -> bool:
        name = hostname_of(f"http://{host}/")
        found: list[str] = []
        if not is_private_host(name):
            # A name that does not resolve is left to the fetch, which reports it.
            with contextlib.suppress(OSError, UnicodeError, TimeoutError):
                async with asyncio.timeout(_LOOKUP_SECONDS):
                    found = await look_up_addresses(name)
            if not any(map(is_private_address, found)):
                return True
        for chosen in (LaneFilter.ALL, LaneFilter.IDLE):
            page = await self._store.inspector.lanes(LaneQuery(limit=50, match=host, only=chosen))
            if any(lane.name == host for lane in page.lanes):
                return True
        return False


def _describe_next(standing: CrawlStatus) -> str:
    """Describe what happens to new start URLs.

    :raises UttuError: the crawl has finished or was moved, so it would never fetch them.
    """
    check_not_moved(standing)
    if standing.state == CrawlState.FINISHED:
        raise UttuError(
            f"Crawl {standing.name!r} has finished. Start a new one with: {standing.command()}. "
            "To let a crawl wait for more URLs, start it with -s stay=true"
        )
    if standing.state == CrawlState.PAUSED:
        return f"it is paused; resume it with: {standing.words('resume', standing.name)}"
    if standing.alive and standing.state == CrawlState.RUNNING:
        return "the running crawl fetches them"
    return f"resume it with: {standing.command()}{' --resume' if standing.state == CrawlState.LIMITED else ''}"


def _parse_urls(urls: Sequence[str], pushed: PushResult, report: Report) -> Iterator[Request]:
    for url in urls:
        try:
            yield Request.from_canonical(parse_web_url(url), start=True)
        except ValueError as error:
            pushed.bad += 1
            report(str(error))


async def _parse_lines(
    lines: Sequence[bytes], where: str, before: int, pushed: PushResult, report: Report, confined: bool
) -> AsyncIterator[Request]:
    for number, line in enumerate(lines, before + 1):
        if entry := line.strip():
            try:
                request = parse_request(entry, None)
                if confined:
                    await check_proxy(request)
                yield request
            except ValueError as error:
                pushed.bad += 1
                report(f"{where}, line {number}: {error}")
