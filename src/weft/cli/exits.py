"""Exit codes, and errors as messages.

0  finished             3  spider or configuration can't be loaded     130  interrupted (SIGINT)
1  failed               4  store can't be reached                      143  terminated (SIGTERM)
2  wrong usage          5  finished, but --fail-on was met
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from weft.errors import ConfigError, StoreError, WeftError

FAILED, USAGE, CONFIG, STORE, BROKEN = 1, 2, 3, 4, 5
BY_SIGNAL = 128


def exit_code(error: WeftError) -> int:
    if isinstance(error, ConfigError):
        return CONFIG
    if isinstance(error, StoreError):
        return STORE
    return FAILED


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """End the process with a message and the right code for errors of ours; others are bugs and show themselves."""
    try:
        yield
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
    except BrokenPipeError:
        # The reader of our output went away. Python would complain again when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(BY_SIGNAL + 2)
