"""Whether a crawl did its job: exactly one right row for each page."""

from __future__ import annotations

from pathlib import Path

import msgspec
from bench.side_by_side.site import Row


def problem(file: Path, expected: set[Row]) -> str:
    """What is wrong with the rows in ``file``; empty if nothing is."""
    try:
        found = [Row(**msgspec.json.decode(line)) for line in file.read_bytes().splitlines()]
    except (OSError, TypeError, msgspec.DecodeError) as error:
        return f"its rows can't be read: {error}"
    different = set(found) ^ expected
    if different:
        return f"{len(different)} rows are missing or wrong, such as that of {min(different).url}"
    if len(found) != len(expected):
        return f"{len(found) - len(expected)} rows too many: pages were visited twice"
    return ""
