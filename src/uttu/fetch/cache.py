"""The development cache: each page is fetched once, then replayed from a file.

Use it to write and rewrite handlers without asking the host again. It does not follow the rules of HTTP caching:
entries do not expire and no header is read; delete the file to start afresh. Responses that a retry may improve (429
and 5xx) and errors are not stored.

    responses   fingerprint, url → status, version, headers (JSON pairs), body (zlib)

The url is part of the key beside the 64-bit fingerprint, so that a collision cannot replay another page. Several
processes may share the file: it is in WAL mode, and writers wait up to ``_BUSY_SECONDS`` for one another.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from uttu.errors import StoreError
from uttu.fetch.base import Fetcher, Resolve, ResolverAware
from uttu.model import Headers, Request, Response

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS responses (
    fingerprint INTEGER NOT NULL,
    url TEXT NOT NULL,
    status INTEGER NOT NULL,
    version TEXT NOT NULL,
    headers BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (fingerprint, url)
) WITHOUT ROWID
"""
_LOAD: Final = "SELECT status, version, headers, body FROM responses WHERE fingerprint = ? AND url = ?"
_STORE: Final = "INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?, ?)"
_BUSY_SECONDS: Final = 30.0
_ZLIB_LEVEL: Final = 3  # zlib: HTML shrinks to a quarter; higher levels take three times as long for a tenth more

_encode_headers = msgspec.json.Encoder().encode
_decode_headers = msgspec.json.Decoder(tuple[tuple[str, str], ...]).decode


class CachingFetcher:
    """A :class:`~uttu.fetch.base.Fetcher` that asks ``inner`` only for pages that ``file`` does not hold.

    A replayed response has ``cached`` set; its ``received`` is the time of the replay. ``fetch`` raises what ``inner``
    raises, and :class:`StoreError` if the file is not usable.
    """

    def __init__(self, inner: Fetcher, file: Path) -> None:
        self._inner = inner
        self._file = file
        self._db: sqlite3.Connection | None = None
        # One thread does all work on the file, so that the event loop does not wait for the disk.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="uttu-cache")
        self._closed = False

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        loop = asyncio.get_running_loop()
        cached = await loop.run_in_executor(self._thread, self._load, request)
        if cached is not None:
            if first is None or len(cached.body) <= first:
                return cached
            return msgspec.structs.replace(cached, body=cached.body[:first], cut=True)
        response = await self._inner.fetch(request, first=first)
        # A cut response is not stored: a later fetch of the same URL may need the complete body.
        if response.status < 500 and response.status != 429 and not response.cut:
            await loop.run_in_executor(self._thread, self._store, response)
        return response

    def use_resolver(self, resolve: Resolve) -> None:
        """See :class:`~uttu.fetch.base.ResolverAware`."""
        if isinstance(self._inner, ResolverAware):
            self._inner.use_resolver(resolve)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        finally:
            self._thread.shutdown()
            await self._inner.close()

    def _load(self, request: Request) -> Response | None:
        started = time.monotonic()
        with self._open_db() as db:
            row = db.execute(_LOAD, (request.fingerprint, request.url)).fetchone()
            if row is None:
                return None
            status, version, headers, body = row
            now = time.monotonic()
            return Response(
                request=request,
                url=request.url,
                status=status,
                headers=Headers(_decode_headers(headers)),
                body=zlib.decompress(body),
                received=now,
                elapsed=now - started,
                version=version,
                cached=True,
            )

    def _store(self, response: Response) -> None:
        request = response.request
        headers = _encode_headers(response.headers.pairs())
        body = zlib.compress(response.body, _ZLIB_LEVEL)
        row = (request.fingerprint, request.url, response.status, response.version, headers, body)
        with self._open_db() as db:
            db.execute(_STORE, row)

    @contextmanager
    def _open_db(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._db is None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._db = _connect(self._file)
            yield self._db
        except sqlite3.OperationalError as error:
            raise StoreError(f"Cannot read or write the cache {self._file}: {error}") from error
        except (sqlite3.DatabaseError, zlib.error, msgspec.MsgspecError) as error:
            raise StoreError(
                f"The cache {self._file} is damaged ({error}). Delete it: it only holds fetched pages, which are then "
                "fetched again"
            ) from error

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def _connect(file: Path) -> sqlite3.Connection:
    db = sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        _enable_wal(db)
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db


def _enable_wal(db: sqlite3.Connection) -> None:
    # If two processes open a new file at once, this statement fails with SQLITE_BUSY without waiting for the busy
    # timeout. So wait here.
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
