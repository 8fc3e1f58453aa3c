"""Finds Chromium, and the flags that make it quiet: no display, no calls home, no questions."""

from __future__ import annotations

import shutil
from typing import Final

from tests.harness.servers.errors import ServerMissing

FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_NAMES: Final = ("chromium", "chromium-browser")


def chromium_program() -> str:
    """The path of the browser.

    :raises ServerMissing: it is not installed.
    """
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    raise ServerMissing(
        "Chromium is not installed; get it with `make setup` as root, or install it: apt-get install chromium"
    )
