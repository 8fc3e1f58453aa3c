"""Exit codes, and errors as messages.

0  finished             3  spider or configuration can't be loaded     130  interrupted (SIGINT)
1  failed               4  store or broker can't be reached            143  terminated (SIGTERM)
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

from weft.errors import BusError, ConfigError, StoreError, UsageError, WeftError

FAILED, USAGE, CONFIG, STORE, BROKEN = 1, 2, 3, 4, 5
BY_SIGNAL = 128
# A disk that takes no more, where standard output goes to one; stores and outputs tell of theirs themselves.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def exit_code(error: WeftError) -> int:
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, ConfigError):
        return CONFIG
    if isinstance(error, StoreError | BusError):
        return STORE
    return FAILED


def end(code: int) -> NoReturn:
    """End the process.

    Without tearing the interpreter down: the HTTP library's threads outlive it and, now and then, would abort the
    process on their way out.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def code_of(work: Callable[[], None]) -> int:
    """Do the work; returns the exit code it came to. Errors of ours become messages."""
    try:
        work()
        # Here and not at the end: if the reader of our output went away, that is the end we came to.
        sys.stdout.flush()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED if end.code else 0
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)
        return exit_code(error)
    except BrokenPipeError:
        return FAILED
    except OSError as error:
        if error.errno not in _FULL:
            traceback.print_exc()
        else:
            print(f"weft: what there is to say can't be written: {error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return BY_SIGNAL + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        return FAILED
    return 0
