"""Add start URLs to a crawl, from arguments, a file or a pipe.

Lines of a pipe are put as they arrive, so a program can feed a crawl as long as it runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec

from uttu.engine.seeds import parse_request
from uttu.errors import UttuError
from uttu.fetch.resolver import check_proxy
from uttu.model import Request
from uttu.model.crawl import CrawlState, Rules
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
    by: str = "",
    folder: Path = Path(),
) -> PushResult:
    """Put all of them; those that are no requests are reported.

    :param urls: URLs as a person types them.
    :param file: A file with a URL, or a request as a JSON object, on each line; ``-`` for standard input.
    :param entries: The same as the lines of a file.
    :param confined: The entries come from a message, and may not name a proxy in a private network.
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

        async def put(requests: list[Request]) -> None:
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


def _describe_next(standing: CrawlStatus) -> str:
    """Describe what happens to new start URLs.

    :raises UttuError: the crawl has finished or was moved, so it would never fetch them.
    """
    check_not_moved(standing)
    if standing.state == CrawlState.FINISHED:
        raise UttuError(
            f"crawl {standing.name!r} has finished, and starts anew with: {standing.command()}. "
            "One that is to wait for more is started with -s stay=true"
        )
    if standing.state == CrawlState.PAUSED:
        return f"it is paused, go on with: {standing.words('resume', standing.name)}"
    if standing.alive and standing.state == CrawlState.RUNNING:
        return "the running crawl takes them up"
    return f"go on with: {standing.command()}{' --resume' if standing.state == CrawlState.LIMITED else ''}"


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
