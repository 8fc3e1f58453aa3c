"""How commands put what they say into words: messages, JSON, numbers, times and sizes."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import Any

import msgspec

_UNITS = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9))


def print_json(value: Any) -> None:
    """As one line for programs, indented for people."""
    text = msgspec.json.encode(value)
    print((msgspec.json.format(text, indent=2) if sys.stdout.isatty() else text).decode())


def say(text: str) -> None:
    """A message: not what was asked for, but good to know."""
    print(text, file=sys.stderr)


def span(seconds: float) -> str:
    """A duration in one unit: ``30 ms``, ``0.4 s``, ``12 s``, ``5 min``, ``3 h``, ``2 days``."""
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s".replace(".0 s", " s")
    for unit, length, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 48)):
        if round(seconds / length) < most:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def stopwatch(seconds: float) -> str:
    """A duration to the second: ``12.3 s``, ``3:24``, ``1:02:03``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def ago(seconds: float) -> str:
    """How long ago or, where it is negative, in how long."""
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def moment(at: float, now: float | None = None) -> str:
    """A time by the clock on the wall, and how long ago it is or will be: ``20:05:31, 3 min ago``."""
    now = time.time() if now is None else now
    then = datetime.fromtimestamp(at)
    form = "%H:%M:%S" if then.date() == datetime.fromtimestamp(now).date() else "%Y-%m-%d %H:%M"
    return f"{then.strftime(form)}, {ago(now - at)}"


def size(count: float) -> str:
    """A number of bytes: ``512 B``, ``6.0 kB``, ``1.2 MB``."""
    if count < 1000:
        return f"{count:.0f} B"
    unit, length = next((each for each in _UNITS if count < 999.5 * each[1]), _UNITS[-1])
    return f"{count / length:,.1f} {unit}" if count < 100 * length else f"{count / length:,.0f} {unit}"


def number(count: int, word: str, words: str = "") -> str:
    """``1 page``, ``2,000 pages``."""
    return f"{count:,} {word if count == 1 else words or word + 's'}"
