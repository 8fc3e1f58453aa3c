"""Start URLs from the command line, a file or a pipe into a crawl's frontier.

What comes through a pipe is put as it comes, so that a program may feed a crawl for as long as it likes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import msgspec

from weft import launch
from weft.cli.crawls import Standing, depot_at, opened, standing_of
from weft.cli.lines import named_file, read_lines, source_of
from weft.cli.one_request import url_of
from weft.cli.steering import check_is_here, named
from weft.cli.words import say
from weft.engine.feeding import request_of
from weft.engine.states import State
from weft.errors import WeftError
from weft.model import Request


class Pushed(msgspec.Struct):
    """What came of it, and what becomes of the new ones."""

    crawl: str
    then: str
    new: int = 0
    known: int = 0
    bad: int = 0


async def push_all(crawl: str, frontier: str, urls: Sequence[str], file: str) -> Pushed:
    """Put all of them; those that are no requests are named on standard error.

    :raises WeftError: the crawl would never come to them, or the file can't be read.
    """
    async with depot_at(frontier) as depot, contextlib.AsyncExitStack() as stack:
        name = await named(depot, crawl)
        async with opened(depot, name) as store:
            standing = await standing_of(depot, name, store)
        pushed = Pushed(name, _what_then(standing))
        source = stack.enter_context(source_of(file)) if file else None
        # Where they stand in line, and at what pace new hosts are asked, is the crawl's to say.
        store = await depot.open(name, launch.rules_of(standing.facts))
        stack.push_async_callback(store.frontier.close)

        async def put(requests: list[Request]) -> None:
            new = await store.frontier.put(requests) if requests else 0
            pushed.new += new
            pushed.known += len(requests) - new

        await put(list(_given(urls, pushed)))
        if source is not None:
            number = 0
            async for lines in read_lines(source):
                await put(list(_read(lines, named_file(file), number, pushed)))
                number += len(lines)
    return pushed


def _what_then(standing: Standing) -> str:
    """:raises WeftError: nothing would come of more pages."""
    check_is_here(standing)
    if standing.state == State.FINISHED:
        raise WeftError(
            f"crawl {standing.name!r} has finished, and starts anew with: {standing.command()}. "
            "One that is to wait for more is started with -s stay=true"
        )
    if standing.state == State.PAUSED:
        return f"it is paused, go on with: {standing.words('resume', standing.name)}"
    if standing.alive and standing.state == State.RUNNING:
        return "the running crawl takes them up"
    return f"go on with: {standing.command()}{' --resume' if standing.state == State.LIMITED else ''}"


def _given(urls: Sequence[str], pushed: Pushed) -> Iterator[Request]:
    for url in urls:
        try:
            yield Request(url=url_of(url), start=True)
        except ValueError as error:
            pushed.bad += 1
            say(str(error))


def _read(lines: Sequence[bytes], where: str, before: int, pushed: Pushed) -> Iterator[Request]:
    for number, line in enumerate(lines, before + 1):
        if entry := line.strip():
            try:
                yield request_of(entry, None)
            except ValueError as error:
                pushed.bad += 1
                say(f"{where}, line {number}: {error}")
