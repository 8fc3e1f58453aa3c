"""Shared by the file formats: a file that grows in batches, and an item as a row or a line.

:class:`AppendFile` makes file outputs exact. A batch is on disk before its length is returned, and the engine stores
that length with the position in the outbox. Bytes that a killed process wrote after it are cut off when the file is
opened again. No data is buffered between batches. The file is locked while it is open (a POSIX record lock, which the
kernel releases when the process dies), because two crawls that truncate and append to one file would corrupt it
silently.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from uttu.errors import SinkError
from uttu.frontier.base import StoredItem
from uttu.sinks.base import Restart

_RETRY: Final = "then run the same command again; no item is lost, they wait in the crawl's store"
_ADVICE: Final = {
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Free some space or raise the quota",
    errno.EFBIG: "Raise the file size limit (ulimit -f) or write to another file system",
    errno.EACCES: "Make it writable or choose another file",
    errno.EPERM: "Make it writable or choose another file",
    errno.EROFS: "Choose a file on a writable file system",
    errno.EISDIR: "Choose a file inside that folder",
    errno.ENOTDIR: "Choose another path: a part of this one is a file",
    errno.EEXIST: "Choose another path: a part of this one is a file",
}


@contextlib.contextmanager
def map_os_errors(path: Path) -> Iterator[None]:
    """Map an ``OSError`` on ``path`` to a ``SinkError`` that says what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "Fix this")
        raise SinkError(f"Cannot write {path}: {error.strerror or error}. {advice}, {_RETRY}") from error


class AppendFile:
    """A file that grows in batches. ``offset`` is its confirmed length, where the next batch is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self._fd = -1

    def open(self, offset: int, begins: bytes = b"", ends: bytes = b"") -> None:
        """Open the file and cut it to ``offset``; 0 creates it and its folders.

        :param begins: the expected first bytes, checked if ``offset`` is not 0.
        :param ends: the expected bytes before ``offset``, checked if ``offset`` is not 0.
        :raises Restart: the file is shorter than ``offset``, or its contents do not match.
        :raises SinkError: the file cannot be written, or another process is writing it.
        """
        self.close()
        with map_os_errors(self.path):
            flags = os.O_RDWR | os.O_CLOEXEC
            if offset == 0:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                flags |= os.O_CREAT
            try:
                self._fd = os.open(self.path, flags, 0o666)
            except FileNotFoundError:
                if offset == 0:
                    raise
                raise Restart(f"{self.path} was deleted") from None
            try:
                self._lock_file()
                self._truncate(offset, begins, ends)
            except BaseException:
                self.close()
                raise
        self.offset = offset

    def append(self, data: bytes, tail: bytes = b"") -> int:
        """Write ``data`` and ``tail`` to disk; return the new offset, which is before the tail.

        :raises Restart: the file was moved, deleted or shortened meanwhile.
        :raises SinkError: the file cannot be written. It is restored as far as possible.
        """
        if not self._is_unchanged():
            raise Restart(f"{self.path} was changed by another process")
        with map_os_errors(self.path):
            try:
                self._write(data + tail)
                os.fsync(self._fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self.offset)
                    self._write(tail)
                raise
        self.offset += len(data)
        return self.offset

    def close(self) -> None:
        """Close the file. Calling it twice is safe."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _lock_file(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise SinkError(f"Cannot write {self.path}: it is not a regular file. To stream items use -o -")
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Any other error means that this file system has no locks: write without one.
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise SinkError(
                    f"Cannot write {self.path}: another process is writing it. Wait until it ends, or remove this "
                    "output: if both run the same crawl, that process writes the items"
                ) from error

    def _truncate(self, offset: int, begins: bytes, ends: bytes) -> None:
        if os.fstat(self._fd).st_size < offset:
            raise Restart(f"{self.path} was shortened")
        if offset:
            head, foot = os.pread(self._fd, len(begins), 0), os.pread(self._fd, len(ends), offset - len(ends))
            if head != begins or foot != ends:
                raise Restart(f"{self.path} has other contents than Uttu wrote")
        os.ftruncate(self._fd, offset)

    def _is_unchanged(self) -> bool:
        try:
            at_path, opened = os.stat(self.path), os.fstat(self._fd)
        except OSError:
            return False
        return (at_path.st_dev, at_path.st_ino) == (opened.st_dev, opened.st_ino) and opened.st_size >= self.offset

    def _write(self, data: bytes) -> None:
        rest, offset = memoryview(data), self.offset
        while rest:
            count = os.pwrite(self._fd, rest, offset)
            rest, offset = rest[count:], offset + count


def parse_length(state: bytes) -> int:
    """Parse the length in a state; an empty state is 0.

    :raises Restart: the state is not a length.
    """
    if state and not state.isdigit():
        raise Restart("The stored state is not a length")
    return int(state or b"0")


VALUE: Final = "value"
"""The column name for an item that is not an object."""

MAX_COLUMNS: Final = 2000
"""Maximum number of columns, the limit of SQLite. More of them mean that the keys hold data."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def to_line(item: StoredItem) -> bytes:
    """Return the item as one line. A line feed in JSON can only be white space between tokens."""
    return item.json.replace(b"\n", b" ") + b"\n"


def to_row(item: StoredItem) -> dict[str, Any]:
    """Return the fields of the item. A list, string or number becomes a row with the single column ``value``.

    :raises SinkError: the item is not valid JSON.
    """
    try:
        return parse_row(item.json)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SinkError(f"Item {item.id} is not valid JSON: {error}") from error


def parse_row(json: bytes) -> dict[str, Any]:
    """Return the row of a JSON document."""
    value = _decode(json)
    return value if isinstance(value, dict) else {VALUE: value}


def to_text(value: Any) -> str:
    """Return a value as text: strings unchanged, everything else as JSON."""
    return value if isinstance(value, str) else to_json(value)


def to_json(value: Any) -> str:
    """Return a value as JSON text."""
    return _encode(value).decode()


def too_many_columns(target: object) -> SinkError:
    """Return the error for more than ``MAX_COLUMNS`` columns."""
    return SinkError(
        f"Cannot write {target}: the items have more than {MAX_COLUMNS} different keys, too many for columns. "
        "Put data into values instead of keys, or write JSON Lines (.jsonl); no item is lost, they wait in the crawl's "
        "store"
    )
