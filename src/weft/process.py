"""Making a process fit for crawling: settings of the runtime that matter at thousands of pages a second."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
import sys

# The event loop and the HTTP client's thread share Python's global lock; by default a thread waits 5 ms for it.
_SWITCH_SECONDS = 0.00002

# By default glibc hands memory back to the system whenever 128 KB are free at its end, and asks for it again a
# moment later: with a parse tree made and dropped per page, four system calls and as many fresh pages each. And small
# blocks that are free it keeps apart ("fast"), to put them together again whenever a large one is freed, as those are.
_KEPT_BYTES = 64 * 1024 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MXFAST = -1, -3, 1

# Almost nothing a crawl makes is cyclic garbage, so it is looked for less often, and not among what was imported.
_COLLECT_AFTER = (20_000, 20, 20)


def tune() -> None:
    """Once a process, before the work begins; again does no harm."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    # Each host that is asked has a connection, and what is allowed at first is often 1,024 of them.
    with contextlib.suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.suppress(OSError, AttributeError):  # no glibc, nothing to do
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)
        mallopt(_M_MXFAST, 0)
