"""Streams: the events of all crawls as server-sent events, and all items of a crawl as a download.

Events come at least once. The id of an event has the position that was reached in each store. A client that connects
again sends it as ``Last-Event-ID``, and gets everything after it, read from the stores; so neither a break of the
connection nor a restart of the dashboard loses an event that a store still has. Stores may show an event somewhat after
a later one, so a client gets those of the last ``_OVERLAP_SECONDS`` again. ``crawl`` and ``position`` identify an
event.

While somebody listens, one task reads the stores every ``POLL_SECONDS``. Each listener has a queue of ``_QUEUE_SIZE``
events. A listener that does not keep up, or takes longer than ``_SEND_SECONDS`` for a message, is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import logging
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal
from weakref import WeakKeyDictionary

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from uttu.api.access import Visitor
from uttu.api.context import Context
from uttu.api.data import crawls
from uttu.api.problems import BadParameters, Unavailable
from uttu.errors import UttuError
from uttu.model.history import CrawlEvent
from uttu.operations import history

POLL_SECONDS: Final = 1.0
_HEARTBEAT_SECONDS: Final = 10.0
_SEND_SECONDS: Final = 10.0
_OVERLAP_SECONDS: Final = 2.0
_QUEUE_SIZE: Final = 1000
_MOST_LISTENERS: Final = 100
_BATCH: Final = 500
# A crawl that has ended gets no more events, but somebody may still retry or move it.
_ENDED_SECONDS: Final = 600.0
_log = logging.getLogger("uttu.api")


class StreamedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an event in the stream."""

    store: str
    crawl: str
    position: int
    at: float
    kind: str
    fields: dict[str, str | int | float]


class _Listener(msgspec.Struct, eq=False):
    queue: asyncio.Queue[bytes]
    is_slow: bool = False


class EventHub:
    """Reads events of all stores while somebody listens, and passes them on."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._listeners: set[_Listener] = set()
        self._task: asyncio.Task[None] | None = None
        # The last position of each crawl that was passed on, and of each store.
        self._crawls: dict[tuple[str, str], int] = {}
        self._stores: dict[str, int] = {}
        self._away: set[str] = set()

    def join(self) -> _Listener:
        """Start to listen.

        :raises Unavailable: there are ``_MOST_LISTENERS`` others.
        """
        if len(self._listeners) >= _MOST_LISTENERS:
            raise Unavailable(f"{_MOST_LISTENERS} clients listen to events already. Try again later")
        listener = _Listener(asyncio.Queue(_QUEUE_SIZE))
        if self._task is None:
            now = int(time.time() * 1e6)
            self._crawls, self._stores = {}, dict.fromkeys(self._context.stores, now)
            self._task = asyncio.create_task(self._run())
        self._listeners.add(listener)
        return listener

    def leave(self, listener: _Listener) -> None:
        self._listeners.discard(listener)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.gather(*map(self._look, self._context.stores))
            await asyncio.sleep(POLL_SECONDS)

    async def _look(self, store: str) -> None:
        try:
            found = await read_store_events(self._context, store, self._stores[store], self._crawls)
        except (UttuError, OSError) as error:
            if store not in self._away:
                self._away.add(store)
                self._send(_encode_notice(store, "away", str(error)))
            return
        except Exception:
            _log.exception("Events of the store %s can't be read", store)
            return
        if store in self._away:
            self._away.discard(store)
            self._send(_encode_notice(store, "back", ""))
        for event in found:
            self._crawls[store, event.crawl] = event.position
            self._stores[store] = max(self._stores[store], event.position)
            self._send(_encode_event(event, self._stores))

    def _send(self, message: bytes) -> None:
        for listener in list(self._listeners):
            try:
                listener.queue.put_nowait(message)
            except asyncio.QueueFull:
                listener.is_slow = True

    def positions(self) -> dict[str, int]:
        """The last position of each store."""
        return dict(self._stores)


async def read_store_events(
    context: Context, store: str, after: int, known: dict[tuple[str, str], int] | None = None
) -> list[StreamedEvent]:
    """Events of all crawls of a store after a position, in the order of their positions.

    :param known: The last known position of crawls, which is exact; ``after`` counts for others, with an overlap.
    """
    url = context.store_url(store)
    found: list[StreamedEvent] = []
    for status in await crawls.read_statuses(context, store):
        if known is not None and not status.alive and time.time() - status.active > _ENDED_SECONDS:
            continue
        start = (known or {}).get((store, status.name), max(after - int(_OVERLAP_SECONDS * 1e6), 0))
        while True:
            events = await _read_events(context, store, url, status.name, start)
            found += [_make_event(store, status.name, event) for event in events]
            if len(events) < _BATCH:
                break
            start = events[-1].position
    return sorted(found, key=lambda event: event.position)


async def _read_events(context: Context, store: str, url: str, crawl: str, after: int) -> list[CrawlEvent]:
    return await context.read(
        ("stream", store, crawl, after),
        f"The store {store}",
        lambda: history.read_events(crawl, url, after, _BATCH, crawls.ignore, context.folder),
        0.0,
    )


def _make_event(store: str, crawl: str, event: CrawlEvent) -> StreamedEvent:
    return StreamedEvent(
        store=store, crawl=crawl, position=event.position, at=event.at, kind=str(event.kind), fields=event.fields
    )


def _encode_event(event: StreamedEvent, positions: dict[str, int]) -> bytes:
    text = ",".join(f"{store}={position}" for store, position in positions.items())
    return f"id: {text}\nevent: {event.kind}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


def _encode_notice(store: str, state: str, error: str) -> bytes:
    data = msgspec.json.encode({"store": store, "state": state, "error": error})
    return b"event: store\ndata: " + data + b"\n\n"


def parse_position(text: str, stores: dict[str, str]) -> dict[str, int]:
    """The positions in a ``Last-Event-ID``. Stores that the dashboard does not watch any more are left out.

    :raises BadParameters: it is not an id of this stream.
    """
    found = {}
    for part in text.split(",") if text else ():
        store, _, position = part.rpartition("=")
        if not position.isdigit() or len(position) > 20:
            raise BadParameters("Last-Event-ID is not an id of this stream")
        if store in stores:
            found[store] = int(position)
    return found


class EventStream(Response):
    """A response of server-sent events that ends with the server, and drops a client that does not read."""

    def __init__(self, context: Context, hub: EventHub, resumed: dict[str, int], visitor: Visitor) -> None:
        super().__init__(
            media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        self._context = context
        self._hub = hub
        self._resumed = resumed
        self._visitor = visitor
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        listener = self._hub.join()
        writing = asyncio.create_task(self._write(listener, send))
        ends = [
            writing,
            asyncio.create_task(_wait_for_disconnect(receive)),
            asyncio.create_task(self._context.closing.wait()),
            asyncio.create_task(self._context.access.wait_for_end(self._visitor)),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            # The server or the session ends, while the client still reads.
            is_cut = not (ends[0].done() or ends[1].done())
        finally:
            self._hub.leave(listener)
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        if is_cut or self._context.closing.is_set():
            with contextlib.suppress(OSError, RuntimeError, TimeoutError):
                async with asyncio.timeout(0.5):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, listener: _Listener, send: Send) -> None:
        async def put(message: bytes) -> None:
            async with asyncio.timeout(_SEND_SECONDS):
                await send({"type": "http.response.body", "body": message, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await put(b"retry: 2000\n\n")
        positions = self._hub.positions() | self._resumed
        for store in self._resumed:
            with contextlib.suppress(UttuError, OSError):
                for event in await read_store_events(self._context, store, self._resumed[store]):
                    positions[store] = max(positions[store], event.position)
                    await put(_encode_event(event, positions))
        while not listener.is_slow:
            try:
                async with asyncio.timeout(_HEARTBEAT_SECONDS):
                    message = await listener.queue.get()
            except TimeoutError:
                message = b": still here\n\n"
            await put(message)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_hubs: Final[WeakKeyDictionary[Context, EventHub]] = WeakKeyDictionary()


async def follow_events(request: Request, context: Context, given: object) -> Response:
    """Events of all crawls as they happen. Sends those after ``Last-Event-ID`` first; an event may come twice."""
    resumed = parse_position(request.headers.get("last-event-id", ""), context.stores)
    return EventStream(context, _hubs.setdefault(context, EventHub(context)), resumed, request.state.visitor)


class DownloadParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which items, and how they are written."""

    store: str
    crawl: str
    format: Literal["jsonl", "csv"] = "jsonl"
    match: Annotated[str, msgspec.Meta(max_length=1000)] = ""


_DOWNLOAD_PAGE: Final = 500
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


async def download_items(request: Request, context: Context, given: DownloadParameters) -> Response:
    """All items of a crawl that are in its store, the latest first, as JSON lines or CSV."""
    first = await crawls.read_items(context, given.store, given.crawl, _DOWNLOAD_PAGE, 0, given.match)
    kind = "application/x-ndjson" if given.format == "jsonl" else "text/csv; charset=utf-8"
    name = "".join(each if each.isascii() else "_" for each in given.crawl)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{given.format}"'}
    return StreamingResponse(_write_items(context, given, first), media_type=kind, headers=headers)


async def _write_items(context: Context, given: DownloadParameters, page: Any) -> AsyncIterator[bytes]:
    columns: list[str] = page.columns
    if given.format == "csv":
        yield _format_row(columns)
    while True:
        for row in page.items:
            if given.format == "jsonl":
                yield msgspec.json.encode(row.value) + b"\n"
            else:
                yield _format_row([row.value.get(name) for name in columns])
        if not page.next:
            return
        page = await crawls.read_items(context, given.store, given.crawl, _DOWNLOAD_PAGE, page.next, given.match)


def _format_row(values: list[Any]) -> bytes:
    """A line of CSV. A text that a spreadsheet would run as a formula gets an apostrophe."""
    cells = []
    for value in values:
        text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
        is_formula = isinstance(value, str) and text.startswith(_FORMULA)
        cells.append(f"'{text}" if is_formula else text)
    output = io.StringIO()
    csv.writer(output).writerow(cells)
    return output.getvalue().encode()
