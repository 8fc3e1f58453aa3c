"""Operations on crawls, buses and jobs: async functions with typed values in and out.

The command line and the jobs call these functions.
"""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]
"""Receives messages for people while an operation runs: entries that were refused, or why it waits."""


def format_count(count: int, word: str, words: str = "") -> str:
    """``1 page``, ``2,000 pages``."""
    return f"{count:,} {word if count == 1 else words or word + 's'}"
