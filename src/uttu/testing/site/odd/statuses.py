"""Statuses, and servers that count how often they were asked."""

from __future__ import annotations

import math
import time
from collections import Counter
from email.utils import formatdate

from uttu.testing.site.message import Answer, Exchange, Incoming, Reply, html, natural


class Statuses:
    """Answers ``/odd/status/…``, ``/odd/flaky/…`` and ``/odd/429/…``."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, str]] = Counter()

    def status(self, parts: list[str], incoming: Incoming) -> Reply:
        code = natural(parts[1]) if len(parts) == 2 else None
        if code is None or not 100 <= code <= 999:
            return None
        if code >= 200:
            return html(f"Status {code}", "<p>As asked.</p>", code) if code not in (204, 304) else Answer(status=code)

        async def interim(exchange: Exchange) -> None:
            await exchange.raw(b"HTTP/1.1 %d Wait\r\nLink: </style.css>; rel=preload\r\n\r\n" % code)
            await exchange.send(html(f"After {code}", "<p>As asked.</p>"))

        return interim

    def flaky(self, parts: list[str], incoming: Incoming) -> Reply:
        count = self._count_request(incoming)
        if count > incoming.number("fails", 2):
            return html("Up again", f"<p>Asked {count} times.</p>")
        return html("Down", f"<p>Asked {count} times.</p>", int(incoming.number("status", 503)))

    def too_many(self, parts: list[str], incoming: Incoming) -> Reply:
        count = self._count_request(incoming)
        if count > incoming.number("times", 2):
            return html("Welcome", f"<p>Asked {count} times.</p>")
        after = incoming.number("after", 1)
        # A date has whole seconds. Round up: rounded down, it would be too early.
        when = formatdate(math.ceil(time.time() + after), usegmt=True) if "date" in incoming.query else f"{after:g}"
        page = html("Too many requests", "<p>Later.</p>", 429)
        return Answer(page.body, page.content_type, 429, (("Retry-After", when),))

    def _count_request(self, incoming: Incoming) -> int:
        key = (incoming.host, incoming.path)
        self._counts[key] += 1
        return self._counts[key]
