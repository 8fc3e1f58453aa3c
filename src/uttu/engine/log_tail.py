"""Keep the latest log records of this process in memory, for the report of its worker.

By default the level of the log is ``warning``, so records of level ``info`` are not made at all. While a tail is kept,
the logger ``uttu`` makes them, and passes on only those that would have been made without the tail. Records about
single pages (``uttu.page``) keep their level: a crawl may give up thousands of pages a second. If a program has added
handlers to these loggers, their levels stay, and the tail gets what the handlers get.

One tail serves all crawls of a process; see :func:`keep_log_tail`.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

from uttu.clients.addresses import mask_logins
from uttu.model.crawl import LogLine

MOST_LINES: Final = 30
LONGEST_LINE: Final = 300
_LOGGER: Final = logging.getLogger("uttu")
_PAGE_LOGGER: Final = logging.getLogger("uttu.page")


class LogTail(logging.Handler):
    """The latest records of the logger ``uttu`` and its children."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=MOST_LINES)
        self._users = 0
        self._former = (logging.NOTSET, logging.NOTSET)
        self._is_raised = False

    @property
    def lines(self) -> list[LogLine]:
        """The latest records, the oldest first."""
        return list(self._lines)

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):  # arguments that don't fit the message: other handlers complain
            if record.levelno >= logging.INFO:
                text = mask_logins(record.getMessage())[:LONGEST_LINE]
                self._lines.append(LogLine(record.created, record.levelname.lower(), text))
        if self._is_raised and record.levelno >= (self._former[0] or logging.root.getEffectiveLevel()):
            # The logger does not propagate now. The root logger prints warnings even if it has no handler.
            logging.root.callHandlers(record)

    def install(self) -> None:
        """Keep records from now on, until :meth:`remove` was called as often."""
        self._users += 1
        if self._users > 1:
            return
        self._former = (_LOGGER.level, _PAGE_LOGGER.level)
        is_quiet = _LOGGER.getEffectiveLevel() > logging.INFO
        self._is_raised = is_quiet and _LOGGER.propagate and not _has_handlers()
        if self._is_raised:
            if _PAGE_LOGGER.level == logging.NOTSET:
                _PAGE_LOGGER.setLevel(_LOGGER.getEffectiveLevel())
            _LOGGER.setLevel(logging.INFO)
            _LOGGER.propagate = False
        _LOGGER.addHandler(self)

    def remove(self) -> None:
        self._users -= 1
        if self._users:
            return
        _LOGGER.removeHandler(self)
        if self._is_raised:
            _LOGGER.propagate = True
            _LOGGER.setLevel(self._former[0])
            _PAGE_LOGGER.setLevel(self._former[1])
            self._is_raised = False


def _has_handlers() -> bool:
    """Whether a program has added handlers to Uttu's loggers. They would get records that were not made before."""
    known = [each for name, each in logging.root.manager.loggerDict.items() if name.startswith("uttu.")]
    return any(isinstance(each, logging.Logger) and each.handlers for each in (_LOGGER, *known))


_tail: Final = LogTail()


@contextlib.contextmanager
def keep_log_tail() -> Iterator[LogTail]:
    """Keep the latest log records of this process during the block."""
    _tail.install()
    try:
        yield _tail
    finally:
        _tail.remove()
