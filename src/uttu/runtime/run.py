"""Crawl from a program: ``run`` for scripts, ``run_async`` for running loops, ``stream`` to iterate over the items.

A crawl of a program is the same as one of ``uttu crawl``: it has a supervisor, its store is in ``.uttu``, its outputs
are written from the outbox, and a crawl that was cut short is resumed by the next call. Two things differ. No guardian
process restarts the program if a handler crashes the interpreter, unless there are several workers, which run in
separate processes. Nothing is printed; warnings go to the logger ``uttu.crawl``.

Arguments belong to the spider object (``spider.args``), which its handlers read. So they are set while a crawl runs,
and two crawls of one object at the same time must have the same (:func:`~uttu.runtime.spec.use_arguments`).

Each crawl runs in one task (:class:`_ProgramCrawl`), so that several can share an event loop, and so that everything is
opened and closed in the same task. The first interruption drains: the pages in flight are finished. The second one
stops at once.

``stream`` reads the outbox. Its position is the cursor of a sink called ``stream``, stored after each batch of
``STREAM_BATCH`` items and when the iteration ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import os
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Unpack

import msgspec
import uvloop

from uttu.engine.aio import wait_for_event
from uttu.engine.heartbeat import TERMINATE_SECONDS
from uttu.engine.sink_writer import Claim
from uttu.engine.supervisor import Ending, Supervisor
from uttu.errors import ItemsTrimmed, SinkError, SpiderError, UsageError
from uttu.frontier.base import Cursor, Rules
from uttu.frontier.catalog import CrawlCatalog, CrawlStore
from uttu.model.crawl import INTERRUPTED, Reason, SettingValues, check_crawl_name
from uttu.runtime.crawl import CrawlSummary, LeadSession, lead_program
from uttu.runtime.registry import create_sink
from uttu.runtime.signals import handle_signals
from uttu.runtime.spec import CrawlSpec, derive_crawl_name, format_arguments, use_arguments
from uttu.settings import Settings, load_settings
from uttu.sinks.base import Sink
from uttu.spider import Spider
from uttu.spider.loader import is_loading

Output = str | os.PathLike[str] | Sink
"""An output of a crawl: a target as for ``uttu crawl -o``, or a sink."""

CANCELLED: Final = Reason("cancelled")
"""The reason of a crawl whose task was cancelled."""
STREAM_CLOSED: Final = Reason("stream closed")
"""The reason of a crawl whose items were not read to the end."""
STREAM_BATCH: Final = 100
"""Items that ``stream`` may give again after a kill, at most."""
_STREAM_NAME: Final = "stream"
# Not empty: a cursor with an empty state counts as one that never ran.
_STREAM_STATE: Final = b"given"
_POLL_SECONDS: Final = 0.1
_log = logging.getLogger("uttu.crawl")


def run(
    spider: Spider,
    *,
    output: Output | Iterable[Output] = (),
    name: str = "",
    args: Mapping[str, Any] | None = None,
    workers: int = 1,
    fresh: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    **settings: Unpack[SettingValues],
) -> CrawlSummary:
    """Run a crawl to its end, on a new event loop. For scripts.

    SIGINT (Ctrl-C) and SIGTERM end the crawl gracefully if this is called from the main thread: the first one finishes
    the pages in flight, the second one gives them back.

    :param output: Where items go: one target or several, as for ``uttu crawl -o``, or sinks.
    :param name: The name of the crawl, by default that of the spider, with a suffix if there are ``args``.
    :param args: Arguments of the spider, as with ``-a``. Values are converted to the types of their defaults.
    :param workers: Processes on this machine. More than one load the file of the spider, as ``uttu worker`` does.
    :param fresh: Start again, even if the last crawl did not finish.
    :param resume: Continue a crawl that ended at a limit.
    :param overwrite: Replace output files that another program wrote.
    :param settings: All other keywords are settings. They win over ``uttu.toml`` and the environment.
    :raises UttuError: the crawl can't start, or failed: its store, an output or its start requests can't be used. The
        same call resumes a crawl that failed.
    :raises KeyboardInterrupt: interrupted before the crawl began.
    """
    if _is_loop_running():
        raise UsageError("uttu.run(…) can't be called in a running event loop. Write: await uttu.run_async(…)")
    crawl = _ProgramCrawl(
        spider, output, settings, name=name, args=args, workers=workers, fresh=fresh, resume=resume, overwrite=overwrite
    )

    async def main() -> CrawlSummary:
        task = asyncio.create_task(crawl.run())
        with handle_signals(functools.partial(crawl.interrupt, task)):
            return await _await_gracefully(crawl, task)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(main())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


async def run_async(
    spider: Spider,
    *,
    output: Output | Iterable[Output] = (),
    name: str = "",
    args: Mapping[str, Any] | None = None,
    workers: int = 1,
    fresh: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    **settings: Unpack[SettingValues],
) -> CrawlSummary:
    """As :func:`run`, on the running event loop. Crawls with different names may run at the same time.

    If the task is cancelled, by Ctrl-C under ``asyncio.run`` or by a timeout, the pages in flight are finished before
    ``CancelledError`` is raised. If it is cancelled again meanwhile, they are given back.

    :raises UttuError: see :func:`run`; also if a crawl of this name is running.
    """
    crawl = _ProgramCrawl(
        spider, output, settings, name=name, args=args, workers=workers, fresh=fresh, resume=resume, overwrite=overwrite
    )
    return await _await_gracefully(crawl, asyncio.create_task(crawl.run()))


async def stream(
    spider: Spider,
    *,
    output: Output | Iterable[Output] = (),
    name: str = "",
    args: Mapping[str, Any] | None = None,
    workers: int = 1,
    fresh: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    **settings: Unpack[SettingValues],
) -> AsyncGenerator[dict[str, Any], None]:
    """Run a crawl and iterate over its items, each as soon as it is stored.

    The crawl does not wait for a slow reader: items wait in the store. If the iteration is closed early, the crawl ends
    gracefully, and the next call continues after the last item that was read. After a kill, the next call gives up to
    ``STREAM_BATCH`` items again, and no item is left out. If a killed program had not read all items of a crawl that
    ended, the next call gives the others and does not start a new crawl.

    ``break`` closes the iteration in the background. To wait until the crawl has ended, use ``contextlib.aclosing``.

    :raises UttuError: see :func:`run`; also if a crawl of this name is running.
    """
    reader = _StreamReader()
    crawl = _ProgramCrawl(
        spider,
        output,
        settings,
        reader,
        name=name,
        args=args,
        workers=workers,
        fresh=fresh,
        resume=resume,
        overwrite=overwrite,
    )
    task = asyncio.create_task(crawl.run())
    try:
        async with contextlib.aclosing(reader.read(task)) as items:
            async for item in items:
                yield item
    finally:
        reader.close()
        crawl.drain(task, STREAM_CLOSED)
        await _await_gracefully(crawl, task)


class _ProgramCrawl:
    """One crawl of a program: checks what was given, leads the crawl, and ends it gracefully."""

    def __init__(
        self,
        spider: Spider,
        output: Output | Iterable[Output],
        flags: SettingValues,
        reader: _StreamReader | None = None,
        *,
        name: str,
        args: Mapping[str, Any] | None,
        workers: int,
        fresh: bool,
        resume: bool,
        overwrite: bool,
    ) -> None:
        if is_loading.get():
            raise UsageError(
                "A spider file must not start a crawl while it is loaded. Put the call below: if __name__ == "
                '"__main__":'
            )
        if fresh and resume:
            raise UsageError("fresh=True starts a crawl again, resume=True continues it: give one of them")
        if not spider.default_handler:
            raise SpiderError(f"Spider {spider.name!r} has no handler. Put @spider.page above a function")
        if workers < 1:
            raise UsageError(f"workers={workers}: give 1 or more")
        arguments, file = format_arguments(args or {}), _find_file(spider)
        if workers > 1 and not file.name:
            raise UsageError(f"workers={workers}: the spider {spider.name!r} has no file that each process could load")
        self._name = name or derive_crawl_name(spider, arguments)
        check_crawl_name(self._name)
        self._spider = spider
        self._settings = load_settings(spider.settings, flags, flag_source="the keywords of this call")
        given = _list_outputs(output)
        self._sinks = [
            create_sink(os.fspath(each), self._name) if isinstance(each, str | os.PathLike) else each for each in given
        ]
        self._spec = CrawlSpec(
            file=file,
            spider_name=spider.name,
            arguments=arguments,
            workers=workers,
            flags={key: msgspec.to_builtins(value) for key, value in flags.items()},
            outputs=tuple(os.fspath(each) if isinstance(each, str | os.PathLike) else each.name for each in given),
            fresh=fresh,
            resume=resume,
            overwrite=overwrite,
            crawl=name,
        )
        self._reader = reader
        self._supervisor: Supervisor | None = None
        self._interruptions = 0

    async def run(self) -> CrawlSummary:
        """Lead the crawl to its end.

        :raises UttuError: see :func:`run`.
        """
        began = time.monotonic()
        spec, settings = self._spec, self._settings
        with use_arguments(self._spider, spec.arguments):
            return await self._lead(spec, settings, began)

    async def _lead(self, spec: CrawlSpec, settings: Settings, began: float) -> CrawlSummary:
        async with lead_program(spec, self._spider, settings, self._name, self._sinks, self._before) as session:
            for output, owner in session.supervisor.elsewhere.items():
                _log.warning("%s is being written by %s; it is taken over when that process is gone", output, owner)
            self._supervisor = session.supervisor
            ending = await self._attend(session)
            return await session.summarize(ending, time.monotonic() - began)

    async def _before(self, catalog: CrawlCatalog) -> bool:
        """Whether an ended crawl of this name must be resumed: because a stream of it was not read to the end."""
        if self._reader is None or self._spec.fresh or self._name not in await catalog.names():
            return False
        store = await catalog.open(self._name, Rules())
        try:
            return await self._reader.is_behind(store)
        finally:
            await store.frontier.close()

    async def _attend(self, session: LeadSession) -> Ending:
        if self._reader is None:
            return await session.supervisor.run()
        async with self._reader.reading(session.opened.store):
            ending = await session.supervisor.run()
            await self._reader.finish()
            return ending

    def drain(self, task: asyncio.Task[CrawlSummary], reason: Reason) -> None:
        """End the crawl. The pages in flight are finished within the grace period. Without effect after the end."""
        if self._supervisor is None:
            task.cancel()
        elif not task.done():
            self._supervisor.drain(reason)
            self._supervisor.hurry()

    def interrupt(self, task: asyncio.Task[CrawlSummary], number: int = 0) -> None:
        """Drain the crawl; the second time, stop it at once.

        :param number: The signal; 0 if the task that awaits the crawl was cancelled.
        """
        self._interruptions += 1
        if self._supervisor is None:
            task.cancel()
        elif self._interruptions > 1:
            self._supervisor.stop(INTERRUPTED)
        elif number == signal.SIGINT:
            # The user can press Ctrl-C again, so the pages in flight have no time limit.
            self._supervisor.drain(INTERRUPTED)
        elif number:
            self._supervisor.drain(INTERRUPTED)
            self._supervisor.hurry(TERMINATE_SECONDS)
        else:
            self.drain(task, CANCELLED)


async def _await_gracefully(crawl: _ProgramCrawl, task: asyncio.Task[CrawlSummary]) -> CrawlSummary:
    """Await the crawl. If the caller is cancelled meanwhile, end the crawl gracefully and then raise that."""
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            summary = await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.done():
                raise
            cancelled = error
            crawl.interrupt(task)
        else:
            if cancelled is not None:
                raise cancelled
            return summary


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _StreamReader:
    """Hands the items of a crawl to one iteration, and stores how far it got.

    :meth:`read` runs in the caller's task, everything else in the crawl's task.
    """

    def __init__(self) -> None:
        self._store: CrawlStore | None = None
        self._opened = asyncio.Event()
        self._crawl_over = asyncio.Event()
        self._done = asyncio.Event()
        self._position = 0

    async def is_behind(self, store: CrawlStore) -> bool:
        """Whether an earlier stream of this crawl did not give all items."""
        cursor = await store.outbox.cursor(_STREAM_NAME)
        if not cursor.state:
            return False
        try:
            return bool(await store.outbox.items(cursor.position, 1))
        except ItemsTrimmed:
            return False

    @contextlib.asynccontextmanager
    async def reading(self, store: CrawlStore) -> AsyncIterator[None]:
        """Let :meth:`read` read this store during the block; store its position at the end."""
        # One process supervises a crawl, so all its streams have the same owner and need not wait for a former claim.
        claim = Claim(store.ledger, f"drain {_STREAM_NAME}", _STREAM_NAME)
        await claim.take()
        self._position = (await store.outbox.cursor(_STREAM_NAME)).position
        self._store = store
        try:
            await self._save()
            self._opened.set()
            yield
        finally:
            self._store = None
            self._done.set()
            await store.outbox.advance(_STREAM_NAME, Cursor(self._position, _STREAM_STATE), _STREAM_NAME)
            await claim.give_up()

    async def finish(self) -> None:
        """The crawl has ended: wait until all items are read, or the iteration is closed."""
        self._crawl_over.set()
        await self._done.wait()

    def close(self) -> None:
        """The iteration is closed: no more items are read."""
        self._done.set()

    async def read(self, task: asyncio.Task[CrawlSummary]) -> AsyncGenerator[dict[str, Any], None]:
        """The items after the stored position, until the crawl has ended.

        :raises SinkError: items were removed from the store before they were read.
        """
        opening = asyncio.create_task(self._opened.wait())
        try:
            await asyncio.wait([opening, task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            opening.cancel()
        while (store := self._store) is not None:
            over = self._crawl_over.is_set()
            try:
                batch = await store.outbox.items(self._position, STREAM_BATCH)
            except ItemsTrimmed as error:
                raise SinkError(
                    "Items were removed from the crawl's store before the stream gave them: its other outputs had "
                    "them. Start again with fresh=True, or with keep_items=0 to keep all items"
                ) from error
            for item in batch:
                self._position = item.position
                yield msgspec.json.decode(item.json)
            if batch:
                await self._save()
            elif over:
                return
            else:
                await wait_for_event(self._crawl_over, _POLL_SECONDS)

    async def _save(self) -> None:
        if self._store is not None:
            await self._store.outbox.advance(_STREAM_NAME, Cursor(self._position, _STREAM_STATE), _STREAM_NAME)


def _list_outputs(output: Output | Iterable[Output]) -> list[Output]:
    if isinstance(output, str | os.PathLike):
        return [output]
    return list(output) if isinstance(output, Iterable) else [output]


def _find_file(spider: Spider) -> Path:
    """The file of a spider: where it was loaded from, or where its first handler is defined. Empty without a file."""
    if spider.file is not None:
        return spider.file
    code = getattr(inspect.unwrap(spider.handlers[spider.default_handler]), "__code__", None)
    file = Path(code.co_filename) if code is not None else Path()
    return file if file.is_file() else Path()
