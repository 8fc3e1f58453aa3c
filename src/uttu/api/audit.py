"""The audit log: who did what, from where, and how it ended, as lines of JSON.

``.uttu/dashboard/audit.jsonl`` is renamed to ``audit.jsonl.1`` when it has ``MOST_BYTES``, and so on; ``KEPT_FILES``
older files are kept. Secrets never get here: entries hold the parameters of a request without passwords and payloads.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

MOST_BYTES: Final = 8 * 1024 * 1024
KEPT_FILES: Final = 4
_LONGEST_TEXT: Final = 500
_log = logging.getLogger("uttu.api")


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action. ``via``: session, token, local or command. ``error`` is empty if it was done."""

    position: int
    """Microseconds since 1970; grows with each entry."""
    at: float
    user: str
    action: str
    target: str = ""
    address: str = ""
    via: str = ""
    status: int = 200
    error: str = ""


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the audit log, the latest first. ``next`` is 0 at the end."""

    entries: list[AuditEntry]
    next: int = 0


class AuditLog:
    """The log in a file. Writing to it never fails a request: an error is logged instead."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._last = 0

    def write(
        self,
        user: str,
        action: str,
        target: str = "",
        *,
        address: str = "",
        via: str = "",
        status: int = 200,
        error: str = "",
    ) -> None:
        """Append an entry."""
        with self._lock:
            now = time.time()
            self._last = max(self._last + 1, int(now * 1e6))
            entry = AuditEntry(
                position=self._last,
                at=now,
                user=user[:_LONGEST_TEXT],
                action=action[:_LONGEST_TEXT],
                target=target[:_LONGEST_TEXT],
                address=address,
                via=via,
                status=status,
                error=error[:_LONGEST_TEXT],
            )
            _log.info("%s by %s from %s: %s %s", action, user or "nobody", address, status, error)
            try:
                self._append(msgspec.json.encode(entry) + b"\n")
            except OSError as failed:
                _log.error("The audit log %s can't be written: %s", self._file, failed)

    def _append(self, line: bytes) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(target, line)
            size = os.fstat(target).st_size
        finally:
            os.close(target)
        if size >= MOST_BYTES:
            for number in range(KEPT_FILES, 0, -1):
                source = self._part(number - 1)
                with contextlib.suppress(FileNotFoundError):
                    source.replace(self._part(number))

    def _part(self, number: int) -> Path:
        return self._file.with_name(f"{self._file.name}.{number}") if number else self._file

    def read(self, limit: int, before: int = 0) -> AuditPage:
        """The latest entries; only those before position ``before`` if it is given."""
        found: list[AuditEntry] = []
        for entry in self._entries():
            if before and entry.position >= before:
                continue
            if len(found) == limit:
                return AuditPage(entries=found, next=found[-1].position)
            found.append(entry)
        return AuditPage(entries=found)

    def _entries(self) -> Iterator[AuditEntry]:
        """All entries, the latest first. A line that a crash cut short is left out."""
        for number in range(KEPT_FILES + 1):
            try:
                lines = self._part(number).read_bytes().splitlines()
            except FileNotFoundError:
                continue
            for line in reversed(lines):
                with contextlib.suppress(msgspec.MsgspecError):
                    yield msgspec.json.decode(line, type=AuditEntry)
