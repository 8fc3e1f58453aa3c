"""Numbers, durations, sizes, times and links as pages show them: every number with its unit."""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup

from uttu.api.pages.translation import Translator, mark

NOTHING: Final = "–"
"""Shown where a value is unknown."""
_UNITS: Final = ((86_400.0, mark("{n} d")), (3600.0, mark("{n} h")), (60.0, mark("{n} min")), (1.0, mark("{n} s")))


def format_number(number: float | None) -> str:
    """``12,345``; with a fraction only if the number is small: ``0.25``, ``3.4``, ``127``."""
    if number is None or not math.isfinite(number):
        return NOTHING
    if number == int(number) or abs(number) >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2g}" if abs(number) < 1 else f"{number:.1f}"


def format_short(number: float | None) -> str:
    """At most about four characters, for axes: ``950``, ``1.2k``, ``34M``."""
    if number is None or not math.isfinite(number):
        return NOTHING
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def format_bytes(size: float | None) -> str:
    """``512 B``, ``1.5 MB``. Units of 1,000 bytes."""
    if size is None or not math.isfinite(size):
        return NOTHING
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(size) >= limit:
            return f"{size / limit:.3g} {unit}"
    return f"{size:.0f} B"


def format_duration(seconds: float | None, t: Translator) -> str:
    """The two largest units: ``2 h 5 min``, ``3 d``, ``40 s``, ``0.35 s``, ``12 ms``."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if abs(seconds) < 0.1 and seconds:
        return t("{n} ms", n=f"{seconds * 1000:.0f}")
    if abs(seconds) < 10:
        return t("{n} s", n=f"{seconds:.2g}")
    left = round(abs(seconds))
    parts: list[str] = []
    for size, unit in _UNITS:
        if left >= size and len(parts) < 2:
            number, left = divmod(left, int(size))
            parts.append(t(unit, n=number))
        elif parts:
            break
    return " ".join(parts)


def format_ago(at: float, t: Translator, now: float | None = None) -> str:
    """``5 min ago``, or ``in 2 h``; of one unit only, so that it does not change with every look."""
    seconds = (time.time() if now is None else now) - at
    for size, unit in _UNITS:
        if abs(seconds) >= size and (size > 1 or abs(seconds) >= 10):
            text = t(unit, n=int(abs(seconds) // size))
            return t("{time} ago", time=text) if seconds > 0 else t("in {time}", time=text)
    return t("just now")


def time_tag(at: float, t: Translator, style: str = "ago") -> Markup:
    """A time as ``<time>``, which the script converts to the viewer's zone. ``style``: ago, clock, or full."""
    if not at or not math.isfinite(at):
        return Markup(NOTHING)
    moment = datetime.fromtimestamp(at, UTC)
    full = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    text = format_ago(at, t) if style == "ago" else f"{moment:%H:%M:%S}" if style == "clock" else full
    return Markup('<time datetime="{}" data-style="{}" title="{}">{}</time>').format(
        moment.isoformat(timespec="milliseconds"), style, full, text
    )


def shorten(text: str, length: int = 80) -> Markup:
    """A text of at most ``length`` characters; the whole text is in the title. Control characters are shown as ␀."""
    whole = "".join(char if char.isprintable() else "\N{SYMBOL FOR NULL}" for char in str(text))
    if len(whole) <= length:
        return Markup("{}").format(whole)
    head = whole[: length * 2 // 3].rstrip()
    tail = whole[-(length - len(head) - 1) :].lstrip()
    return Markup('<span title="{}">{}</span>').format(whole[:2000], f"{head}…{tail}")


def link_out(url: str, length: int = 80) -> Markup:
    """A link to a crawled URL; only text if it is not http(s)."""
    if not url.lower().startswith(("http://", "https://")):
        return shorten(url, length)
    return Markup('<a class="out" href="{}" rel="noreferrer noopener" target="_blank">{}</a>').format(
        url, shorten(url, length)
    )


def format_payload(payload: bytes) -> tuple[str, str]:
    """A payload as text, and its kind: ``json``, ``text`` or ``base64``."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        import base64

        return base64.b64encode(payload[:3000]).decode(), "base64"
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False), "json"
    except (ValueError, RecursionError):
        return text, "text"


def format_value(value: Any) -> str:
    """A value of an item in one line."""
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
