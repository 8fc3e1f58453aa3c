"""The development cache: each page is fetched once, then replayed from a file.

For writing and rewriting handlers without asking the host again. It is no HTTP cache: nothing
expires, no header is heeded; delete the file to start afresh. What another try may mend (429, 5xx,
errors) is not kept.

    responses   fingerprint, url → status, version, headers (JSON pairs), body (zlib)

The url stands in the key beside the 64-bit fingerprint so that a collision can't replay another
page. Several processes may share the file: WAL, and writers wait for one another.
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

from weft.errors import StoreError
from weft.fetch.base import Fetcher
from weft.model import Headers, Request, Response

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
_LEVEL: Final = 3  # HTML shrinks to a quarter; higher levels take three times as long for a tenth more

_encode_headers = msgspec.json.Encoder().encode
_decode_headers = msgspec.json.Decoder(tuple[tuple[str, str], ...]).decode


class CachingFetcher:
    """A :class:`~weft.fetch.base.Fetcher` that asks ``inner`` only for what ``file`` does not hold.

    A replayed response has ``cached`` set, and was ``received`` at the moment of the replay.
    Besides what ``inner`` raises, ``fetch`` raises :class:`StoreError` if the file can't be used.
    """

    def __init__(self, inner: Fetcher, file: Path) -> None:
        self._inner = inner
        self._file = file
        self._db: sqlite3.Connection | None = None
        # One thread does all work on the file, so that the loop never waits for the disk.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weft-cache")
        self._closed = False

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        loop = asyncio.get_running_loop()
        kept = await loop.run_in_executor(self._thread, self._load, request)
        if kept is not None:
            if first is None or len(kept.body) <= first:
                return kept
            return msgspec.structs.replace(kept, body=kept.body[:first], cut=True)
        response = await self._inner.fetch(request, first=first)
        # Whoever asks for the URL next may want the whole of it.
        if response.status < 500 and response.status != 429 and not response.cut:
            await loop.run_in_executor(self._thread, self._store, response)
        return response

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
        with self._usable() as db:
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
        body = zlib.compress(response.body, _LEVEL)
        row = (request.fingerprint, request.url, response.status, response.version, headers, body)
        with self._usable() as db:
            db.execute(_STORE, row)

    @contextmanager
    def _usable(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._db is None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._db = _connect(self._file)
            yield self._db
        except sqlite3.OperationalError as error:
            raise StoreError(f"the cache {self._file} can't be read or written: {error}") from error
        except (sqlite3.DatabaseError, zlib.error, msgspec.MsgspecError) as error:
            raise StoreError(
                f"the cache {self._file} is damaged ({error}). It holds nothing but fetched pages: "
                "delete it, and they are fetched again"
            ) from error

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def _connect(file: Path) -> sqlite3.Connection:
    db = sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        _write_ahead(db)
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db


def _write_ahead(db: sqlite3.Connection) -> None:
    # Two processes that open a new file at once: SQLite does not wait its busy timeout for this change.
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
