"""Wait for something that another process or thread does, if there is no event to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable

_POLL_SECONDS = 0.02


def wait_until(
    condition: Callable[[], object],
    what: str = "the condition is true",
    seconds: float = 60.0,
    said: Callable[[], str] = str,
) -> None:
    """Check ``condition`` every ``_POLL_SECONDS`` until it is true.

    :param what: completes "Waited … in vain until" in the error message.
    :param said: called for the error message, for example to add the output of the other process.
    :raises TimeoutError: the condition was not true within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {seconds:g} s in vain until {what}\n{said()}".strip())
        time.sleep(_POLL_SECONDS)
