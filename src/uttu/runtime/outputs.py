"""Record the files that Uttu wrote, so that it replaces no others.

A crawl that starts again replaces its outputs, and so does an export. A file that another program wrote under the same
name must not be lost that way. So each file that Uttu writes is recorded in the ledger of the crawl:

    written PATH    inode, size and mtime_ns of the file; closed: whether the writer has closed it

A file is Uttu's own if a crawl of the catalog has a record with its inode, size and modification time. If the writer
was killed before it closed the file, the inode is enough. A new crawl inherits the records of the one it replaces.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from uttu.errors import StoreError, UsageError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlCatalog, CrawlStore
from uttu.sinks.base import Sink, replaces_file

_RECORD_PREFIX: Final = "written "


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A file as Uttu left it; all fields are 0 if it did not exist yet."""

    inode: int = 0
    size: int = 0
    mtime_ns: int = 0
    closed: bool = False

    @classmethod
    def of(cls, path: str, *, closed: bool) -> FileRecord:
        with contextlib.suppress(OSError):
            found = Path(path).stat()
            return cls(inode=found.st_ino, size=found.st_size, mtime_ns=found.st_mtime_ns, closed=closed)
        return cls()

    def fits(self, found: os.stat_result) -> bool:
        """Whether this is still the file that Uttu wrote."""
        if not self.closed:
            return self.inode in (0, found.st_ino)
        return (self.inode, self.size, self.mtime_ns) == (found.st_ino, found.st_size, found.st_mtime_ns)


async def check_outputs(
    sinks: Sequence[Sink],
    catalog: CrawlCatalog,
    facts: Mapping[str, str],
    store: CrawlStore | None = None,
    folder: Path = Path(),
) -> None:
    """Refuse to replace files that another program wrote.

    :param facts: The ledger of the last crawl with this name. Outputs of that crawl without a record count as its own.
    :param store: The crawl's store. Files with a cursor in it are continued, not replaced.
    :param folder: Where the relative paths of that crawl start.
    :raises UsageError: a file of another program would be replaced.
    :raises StoreError: the store can't be read.
    """
    given = msgspec.json.decode(facts.get("outputs", "[]"), type=tuple[str, ...])
    earlier = {os.path.abspath(folder / os.path.expanduser(target)) for target in given}
    for path in _files(sinks):
        if store is not None and (await store.outbox.cursor(path)).state:
            continue
        found = _stat(path)
        if found is None:
            continue
        note = _read_record(facts, path)
        if note.fits(found) if note is not None else path in earlier:
            continue
        notes = [each async for each in _records_of_others(catalog, path)]
        if any(each.fits(found) for each in notes):
            continue
        changed = "has changed since Uttu wrote it" if note or notes else "is there already, and Uttu did not write it"
        raise UsageError(
            f"The output {path} {changed}. Choose another name, move the file away, or replace it with --overwrite"
        )


async def record_outputs(sinks: Iterable[Sink], store: CrawlStore, *, closed: bool) -> None:
    """Record the files of these sinks as Uttu's own.

    :param closed: The files are complete: their size and modification time must match from now on.
    :raises StoreError: the store can't be written.
    """
    notes = {
        _RECORD_PREFIX + path: msgspec.json.encode(FileRecord.of(path, closed=closed)).decode()
        for path in _files(sinks)
    }
    if notes:
        await store.ledger.note(**notes)


async def inherit_records(facts: Mapping[str, str], store: CrawlStore) -> None:
    """Copy the records from the facts of a replaced crawl to the new crawl's store.

    :raises StoreError: the store can't be written.
    """
    kept = {key: value for key, value in facts.items() if key.startswith(_RECORD_PREFIX)}
    if kept:
        await store.ledger.note(**kept)


def _files(sinks: Iterable[Sink]) -> list[str]:
    return [sink.name for sink in sinks if replaces_file(sink)]


def _stat(path: str) -> os.stat_result | None:
    """Stat a regular file that is not empty; None for any other path. Other problems are reported by opening it."""
    with contextlib.suppress(OSError, ValueError):
        found = Path(path).stat()
        return found if stat.S_ISREG(found.st_mode) and found.st_size else None
    return None


def _read_record(facts: Mapping[str, str], path: str) -> FileRecord | None:
    text = facts.get(_RECORD_PREFIX + path)
    return msgspec.json.decode(text, type=FileRecord) if text else None


async def _records_of_others(catalog: CrawlCatalog, path: str) -> AsyncIterator[FileRecord]:
    """The records that all crawls of the catalog have of a file."""
    for name in await catalog.names():
        with contextlib.suppress(StoreError):
            store = await catalog.open(name, Rules())
            try:
                found = _read_record(await store.ledger.facts(), path)
            finally:
                await store.frontier.close()
            if found is not None:
                yield found
