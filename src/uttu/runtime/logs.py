"""Where the log goes: its level, its file and its form, for this process and for those that it starts.

Modules log to ``logging.getLogger("uttu.…")``. Without a choice nothing is set up: Python prints warnings to standard
error and drops the rest. A choice comes from options of the command line (:func:`choose`), and is passed on to child
processes in the environment:

    UTTU_LOG_LEVEL     debug, info, warning, error or critical
    UTTU_LOG_FILE      a file that records are appended to; warnings go to standard error as well
    UTTU_LOG_FORMAT    text, or json: one object per line

The level is set for ``uttu`` only. Handlers belong to the root logger, so that warnings of a spider's own loggers and
of libraries go to the same place. Processes may share a file: each record is appended with one system call.

Records with fields take them from one dict: ``_log.info("Held %(lane)s", {"lane": lane})``. The JSON form has each
field under its name.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from uttu.errors import ConfigError, UsageError
from uttu.settings import LOG_VARIABLES

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
FORMATS: Final = ("text", "json")
_LEVEL, _FILE, _FORMAT = LOG_VARIABLES
# Attributes that every record has. All others were given with ``extra=``.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def choose(
    level: str = "",
    file: str = "",
    form: str = "",
    verbose: int = 0,
    environment: MutableMapping[str, str] = os.environ,
) -> None:
    """Write a choice to the environment, for this process and its children, and set up the log by it.

    :param level: One of ``LEVELS``. It has precedence over ``verbose``.
    :param file: The path of a log file.
    :param form: One of ``FORMATS``.
    :param verbose: 1 for the level ``info``, 2 or more for ``debug``.
    :raises UsageError: the level or the format does not exist.
    :raises ConfigError: the file can't be written.
    """
    _check("--log-level", level, LEVELS)
    _check("--log-format", form, FORMATS)
    level = level or ("debug" if verbose > 1 else "info" if verbose else "")
    path = str(Path(file).absolute()) if file else ""
    environment.update({name: value for name, value in ((_LEVEL, level), (_FILE, path), (_FORMAT, form)) if value})
    set_up(environment)


def set_up(environment: Mapping[str, str] = os.environ) -> None:
    """Set up the log of this process by its environment; does nothing if no choice was made.

    :raises ConfigError: a variable has an invalid value, or the file can't be written.
    """
    level, file, formatter = _read(environment)
    if not (level or file or formatter):
        return
    handlers: list[logging.Handler] = [_FileHandler(file) if file else _StderrHandler()]
    handlers[0].setFormatter(formatter or TextFormatter())
    if file:
        # As without a log file.
        handlers.append(_StderrHandler(logging.WARNING))
    tear_down()
    for handler in handlers:
        logging.root.addHandler(handler)
    logging.getLogger("uttu").setLevel((level or ("info" if file else "warning")).upper())


def set_up_in_celery(logger: logging.Logger, environment: Mapping[str, str] = os.environ) -> None:
    """Add the choice to the log of a Celery process, after Celery has set up its handlers.

    :param logger: The logger with Celery's handlers: the root logger, or the one of tasks.
    :raises ConfigError: a variable has an invalid value, or the file can't be written.
    """
    level, file, formatter = _read(environment)
    tear_down(logger)
    if level:
        logging.getLogger("uttu").setLevel(level.upper())
    if file:
        handler = _FileHandler(file)
        handler.setFormatter(formatter or TextFormatter())
        logger.addHandler(handler)
    elif formatter:
        for each in logger.handlers:
            each.setFormatter(formatter)


def _read(environment: Mapping[str, str]) -> tuple[str, str, logging.Formatter | None]:
    """The level, the file and the formatter; each is empty or None if it was not chosen."""
    level, file, form = (environment.get(name, "") for name in LOG_VARIABLES)
    _check(_LEVEL, level, LEVELS, ConfigError)
    _check(_FORMAT, form, FORMATS, ConfigError)
    return level, file, JsonFormatter() if form == "json" else TextFormatter() if form else None


def tear_down(logger: logging.Logger = logging.root) -> None:
    """Undo :func:`set_up`: remove its handlers and the level."""
    for handler in logger.handlers[:]:
        if isinstance(handler, _FileHandler | _StderrHandler):
            logger.removeHandler(handler)
            handler.close()
    logging.getLogger("uttu").setLevel(logging.NOTSET)


def _check(source: str, given: str, known: tuple[str, ...], wrong: type[UsageError | ConfigError] = UsageError) -> None:
    if given and given not in known:
        raise wrong(f"{source}: there is no {given!r}; give one of: {', '.join(known)}")


class TextFormatter(logging.Formatter):
    """``2026-01-31 07:00:00.123 INFO    4711 uttu.crawl: message``, in local time."""

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s")


class JsonFormatter(logging.Formatter):
    """One object per line: time in UTC, level, logger, process, message, fields of the record, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        own = record.args if isinstance(record.args, Mapping) else {}
        extra = {name: value for name, value in vars(record).items() if name not in _USUAL}
        for name, value in (*own.items(), *extra.items()):
            fields.setdefault(str(name), value)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(fields, enc_hook=repr).decode()
        except UnicodeEncodeError:  # a text with a lone surrogate, which JSON can only have escaped
            return json.dumps(fields, default=repr)


class _StderrHandler(logging.Handler):
    """Writes to the current ``sys.stderr``: the live table of ``uttu crawl`` replaces it while it is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        # Any error: a spider may have replaced the stream with its own object, or with None.
        with contextlib.suppress(Exception):
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()


class _FileHandler(logging.Handler):
    """Appends to a file. If a record can't be written, says so once, and drops it."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._name = file
        self._failed = False
        try:
            self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConfigError(f"Cannot write the log file {file}: {error.strerror}") from error

    def emit(self, record: logging.LogRecord) -> None:
        line = (self.format(record) + "\n").encode(errors="backslashreplace")
        try:
            os.write(self._file, line)
        except OSError as error:
            if not self._failed:
                print(f"uttu: Cannot write the log file {self._name}: {error.strerror}", file=sys.stderr)
            self._failed = True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._file)
        super().close()
