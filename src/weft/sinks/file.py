"""A file that grows by batches and can be taken back to any length it had after one of them.

This is what makes file outputs exact. A batch is on disk before its length is reported, and the
length is kept with the position in the outbox; whatever a killed process wrote after that length
is cut off when the file is opened again. Nothing here is buffered between batches.

The file is locked while it is open (a POSIX record lock, which the kernel drops when the process
dies), because two crawls that truncate and append to one file would ruin it without a word.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from weft.errors import SinkError
from weft.sinks.base import Restart

_RETRY: Final = "then run the same command again; nothing is lost: items wait in the crawl's store"
_ADVICE: Final = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space or raise the quota",
    errno.EFBIG: "raise the file size limit (ulimit -f) or write to another file system",
    errno.EACCES: "make it writable or choose another file",
    errno.EPERM: "make it writable or choose another file",
    errno.EROFS: "choose a file on a file system that can be written",
    errno.EISDIR: "choose a file inside that folder",
    errno.ENOTDIR: "choose a path whose folders are folders",
    errno.EEXIST: "choose a path whose folders are folders",
}


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says about ``path`` into a SinkError that says what to do about it."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "put that right")
        what = error.strerror or str(error)
        raise SinkError(f"can't write {path}: {what}; {advice}, {_RETRY}") from error


class AppendFile:
    """One such file. ``offset`` is its counted length: where the next batch goes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self._fd = -1

    def open(self, offset: int, begins: bytes = b"", ends: bytes = b"") -> None:
        """Cut the file to ``offset``; 0 starts it anew, with its folders.

        :raises Restart: the counted part is not all there, or does not begin and end like this.
        :raises SinkError: it can't be written, or another process is writing it.
        """
        self.close()
        with writing(self.path):
            flags = os.O_RDWR | os.O_CLOEXEC
            if offset == 0:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                flags |= os.O_CREAT
            try:
                self._fd = os.open(self.path, flags, 0o666)
            except FileNotFoundError:
                if offset == 0:
                    raise
                raise Restart(f"{self.path} is gone") from None
            try:
                self._claim()
                self._cut(offset, begins, ends)
            except BaseException:
                self.close()
                raise
        self.offset = offset

    def append(self, data: bytes, tail: bytes = b"") -> int:
        """Write ``data`` and then ``tail``, to disk; returns the new offset, which is before the tail.

        :raises Restart: the file was moved, deleted or shortened meanwhile.
        :raises SinkError: it can't be written; as far as possible it is left as it was.
        """
        if not self._whole():
            raise Restart(f"{self.path} was changed by someone else")
        with writing(self.path):
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
        """Let go of the file; may be called twice."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _claim(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise SinkError(f"can't write {self.path}: it is not a regular file; to stream items use -o -")
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Anything else means that this file system has no locks; that is no reason not to write.
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise SinkError(
                    f"can't write {self.path}: another process is writing it; wait for it to end, "
                    "or leave this output out: items of the same crawl reach it through that process"
                ) from error

    def _cut(self, offset: int, begins: bytes, ends: bytes) -> None:
        if os.fstat(self._fd).st_size < offset:
            raise Restart(f"{self.path} is shorter than it was")
        if offset:
            head, foot = os.pread(self._fd, len(begins), 0), os.pread(self._fd, len(ends), offset - len(ends))
            if head != begins or foot != ends:
                raise Restart(f"{self.path} is not what it was")
        os.ftruncate(self._fd, offset)

    def _whole(self) -> bool:
        try:
            there, here = os.stat(self.path), os.fstat(self._fd)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) and here.st_size >= self.offset

    def _write(self, data: bytes) -> None:
        rest, at = memoryview(data), self.offset
        while rest:
            count = os.pwrite(self._fd, rest, at)
            rest, at = rest[count:], at + count


def length(state: bytes) -> int:
    """The length that a note holds; none is 0.

    :raises Restart: it is not such a note.
    """
    if state and not state.isdigit():
        raise Restart("the note on this output is not a length")
    return int(state or b"0")
