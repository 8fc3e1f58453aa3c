"""Wait for something that another process or thread does, if there is no event to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOK_SECONDS = 0.02


def wait_until(
    condition: Callable[[], object], what: str = "it is so", seconds: float = 60.0, said: Callable[[], str] = str
) -> None:
    """Check ``condition`` every ``_LOOK_SECONDS`` until it is true.

    :param what: completes "waited in vain until …" in the error message.
    :param said: called for the error message: the output of the others, to find out why.
    :raises TimeoutError: the condition was not true within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain until {what}\n{said()}".strip())
        time.sleep(_LOOK_SECONDS)
