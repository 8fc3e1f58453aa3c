"""Record the files that Uttu wrote, so that it replaces no others.

A crawl that starts again replaces its outputs, and so does an export. A file that another program wrote under the same
name must not be lost that way. So each file that Uttu writes is recorded in the ledger of the crawl
(``CrawlFacts.written``).

A file is Uttu's own if a crawl of the catalog has a record with its inode, size and modification time. If the writer
was killed before it closed the file, the inode is enough. A new crawl inherits the records of the one it replaces.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

from uttu.errors import StoreError, UsageError
from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlCatalog, CrawlStore
from uttu.model.facts import CrawlFacts, FileRecord
from uttu.sinks.base import Sink, replaces_file


async def check_outputs(
    sinks: Sequence[Sink],
    catalog: CrawlCatalog,
    facts: CrawlFacts,
    store: CrawlStore | None = None,
    folder: Path = Path(),
) -> None:
    """Refuse to replace files that another program wrote.

    :param facts: The facts of the last crawl with this name. Outputs of that crawl without a record count as its own.
    :param store: The crawl's store. Files with a cursor in it are continued, not replaced.
    :param folder: Where the relative paths of that crawl start.
    :raises UsageError: a file of another program would be replaced.
    :raises StoreError: the store can't be read.
    """
    earlier = {os.path.abspath(folder / os.path.expanduser(target)) for target in facts.outputs}
    for path in _files(sinks):
        if store is not None and (await store.outbox.cursor(path)).state:
            continue
        found = _stat(path)
        if found is None:
            continue
        record = facts.written.get(path)
        if _is_same(record, found) if record is not None else path in earlier:
            continue
        records = [each async for each in _records_of_others(catalog, path)]
        if any(_is_same(each, found) for each in records):
            continue
        changed = (
            "has changed since Uttu wrote it" if record or records else "exists already, and Uttu did not write it"
        )
        raise UsageError(
            f"The output {path} {changed}. Choose another name, move the file away, or replace it with --overwrite"
        )


async def record_outputs(sinks: Iterable[Sink], store: CrawlStore, *, closed: bool) -> None:
    """Record the files of these sinks as Uttu's own.

    :param closed: The files are complete: their size and modification time must match from now on.
    :raises StoreError: the store can't be written.
    """
    if records := {path: _record(path, closed) for path in _files(sinks)}:
        await store.ledger.note(written=records)


async def inherit_records(facts: CrawlFacts, store: CrawlStore) -> None:
    """Copy the records from the facts of a replaced crawl to the new crawl's store.

    :raises StoreError: the store can't be written.
    """
    if facts.written:
        await store.ledger.note(written=facts.written)


def _files(sinks: Iterable[Sink]) -> list[str]:
    return [sink.name for sink in sinks if replaces_file(sink)]


def _stat(path: str) -> os.stat_result | None:
    """Stat a regular file that is not empty; None for any other path. Other problems are reported by opening it."""
    with contextlib.suppress(OSError, ValueError):
        found = Path(path).stat()
        return found if stat.S_ISREG(found.st_mode) and found.st_size else None
    return None


def _record(path: str, closed: bool) -> FileRecord:
    with contextlib.suppress(OSError):
        found = Path(path).stat()
        return FileRecord(inode=found.st_ino, size=found.st_size, mtime_ns=found.st_mtime_ns, closed=closed)
    return FileRecord()


def _is_same(record: FileRecord, found: os.stat_result) -> bool:
    """Whether this is still the file that Uttu wrote."""
    if not record.closed:
        return record.inode in (0, found.st_ino)
    return (record.inode, record.size, record.mtime_ns) == (found.st_ino, found.st_size, found.st_mtime_ns)


async def _records_of_others(catalog: CrawlCatalog, path: str) -> AsyncIterator[FileRecord]:
    """The records that all crawls of the catalog have of a file."""
    for name in await catalog.names():
        with contextlib.suppress(StoreError):
            store = await catalog.open(name, Rules())
            try:
                found = (await store.ledger.facts()).written.get(path)
            finally:
                await store.frontier.close()
            if found is not None:
                yield found
