"""Cookies: those of the shared jar, and a request's own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from weft.model import Headers, Request

if TYPE_CHECKING:
    from pyreqwest.cookie import CookieStore


def cookie_header(jar: CookieStore | None, request: Request) -> str:
    """What to send: the jar's, of longer paths first, and the request's own, which win; empty if there are none."""
    kept = jar.matches(request.url) if jar is not None else ()
    if not kept and not request.cookies:
        return ""
    pairs = [
        (cookie.name, cookie.value)
        for cookie in sorted(kept, key=lambda cookie: -len(cookie.path or ""))
        if cookie.name not in request.cookies
    ]
    return "; ".join(f"{name}={value}" for name, value in (*pairs, *request.cookies.items()))


def keep_cookies(jar: CookieStore, headers: Headers, url: str) -> None:
    """Put into the jar what the host at ``url`` set, as far as it may."""
    if headers.get("set-cookie") is not None:
        for cookie in headers.get_all("set-cookie"):
            with contextlib.suppress(ValueError):
                jar.insert(cookie, url)
