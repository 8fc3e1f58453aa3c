"""Endless pages. A crawler that does not notice them never finishes.

===================================  ==========================================================
``/trap/``                           links to the four below
``/trap/calendar/<yyyy>/<mm>/``      links to the next and the previous month, endlessly
``/trap/deep/a/b/``                  relative links that make paths repeat themselves: a/b/a/b/…
``/trap/session?sid=<hex>``          every page links to itself with new session ids
``/trap/long?x=…``                   every link is longer than the page it is on
===================================  ==========================================================
"""

from __future__ import annotations

from uttu.testing.site.message import Incoming, Reply, html, natural
from uttu.testing.site.model import mix


def trap(incoming: Incoming) -> Reply:
    match incoming.path.split("/")[2:]:
        case [""]:
            return _page(
                "Traps", "/trap/calendar/2024/01/", "/trap/deep/a/b/", "/trap/session?sid=start", "/trap/long?x=x"
            )
        case ["calendar", year, month, ""]:
            return _calendar(natural(year) or 0, natural(month.removeprefix("0")) or 0)
        case ["deep", *folders, ""]:
            return _page(f"{len(folders)} folders deep", "a/b/", "b/a/", "a/")
        case ["session"]:
            seed = int.from_bytes(incoming.query.get("sid", "").encode()[:64], "big")
            ids = [f"{mix(seed & 0xFFFFFFFFFFFFFFFF, seed >> 64, step):016x}" for step in range(3)]
            return _page("Your session", *(f"/trap/session?sid={sid}" for sid in ids))
        case ["long"]:
            grown = incoming.query.get("x", "x")
            return _page(f"{len(grown)} characters", f"/trap/long?x={grown}{grown[:64]}y", f"/trap/long?x={grown}xyz")
    return None


def _calendar(year: int, month: int) -> Reply:
    if not (1 <= year <= 999_999 and 1 <= month <= 12):
        return None
    this = year * 12 + month - 1
    around = [f"/trap/calendar/{at // 12:04d}/{at % 12 + 1:02d}/" for at in (this - 1, this + 1) if at >= 12]
    return _page(f"Calendar {year:04d}-{month:02d}", *around)


def _page(title: str, *links: str) -> Reply:
    return html(title, "<ul>\n" + "".join(f'<li><a href="{link}">{link}</a></li>\n' for link in links) + "</ul>")
