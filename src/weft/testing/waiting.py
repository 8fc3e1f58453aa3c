"""Waiting for what another process or thread does, where nobody tells when it is done."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOK_SECONDS = 0.02


def wait_until(
    condition: Callable[[], object], what: str = "it is so", seconds: float = 60.0, said: Callable[[], str] = str
) -> None:
    """Look again and again. ``said``: what the others had to say, for whoever has to find out why.

    :raises TimeoutError: it did not come to pass.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain until {what}\n{said()}".strip())
        time.sleep(_LOOK_SECONDS)
