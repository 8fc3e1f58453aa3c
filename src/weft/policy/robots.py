"""robots.txt by RFC 9309, over protego.

Protego knows what a rule means: wildcards, precedence, percent-encoding. Which lines are meant for
us is decided here, because protego compares user agents by prefix ("User-agent: we" would be us),
and reads any unknown line as the end of a group. The RFC compares product tokens and passes over
lines it does not define. Only the lines for us are handed on; a hostile file with thousands of
groups costs no more than its length, and a file without rules for us costs nothing per page.

One liberty: the RFC knows no ``Crawl-delay``, and would read the very common

    User-agent: *                   User-agent: BadBot
    Crawl-delay: 10                 Disallow: /

as one group of two names that shuts everyone out. Lines that other crawlers count as members of
a group end its list of names here, as its author meant.

What to do with the answer to the request for the file says :func:`judge`.
"""

from __future__ import annotations

import math
import re
from typing import Final, Literal

from protego import Protego

from weft.model.url import origin_of

MAX_BYTES: Final = 512 * 1024
"""So much of a file counts. The RFC asks for 500 KiB at least."""
ROBOTS_SECONDS: Final = 24 * 3600
"""How long a file may be kept before it is fetched again."""
AWAY_SECONDS: Final = 60
"""How long a site counts as away, once its file was given up, before it is asked for again."""
MAX_REDIRECTS: Final = 5
"""Hops to follow to find the file; one more, and it counts as absent."""

_MAX_VIEWS: Final = 16
_TOKEN: Final = r"[A-Za-z0-9_.-]+"
_token: Final = re.compile(_TOKEN).match
_compatible: Final = re.compile(rf"Mozilla/[^(]*\(compatible;\s*({_TOKEN})").match
# As much of a rule as stands in a URL exactly as it does in the rule.
_plain: Final = re.compile(r"(?:/[A-Za-z0-9/_.~-]*)?").match
_everyone: Final = re.compile(r"\*(?:\s|$)").match
# Common misspellings, and a missing colon, are understood as protego and Google understand them.
_line: Final = re.compile(
    r"""\s*(?: (?P<agent>    user[- ]?agent )
             | (?P<disallow> di[as]{2,3}l{1,2}[ao]w )
             | (?P<allow>    allow )
             | (?P<delay>    crawl[- ]delay )
             | (?P<sitemap>  site-?maps? )
             | (?P<member>   request[- ]rate | visit[- ]time | no-?index | content-(?:signal|usage) )
        ) (?: \s* : | \s )""",
    re.IGNORECASE | re.VERBOSE,
).match


def is_robots(url: str) -> bool:
    """Whether a canonical URL is where a site has its robots.txt."""
    return url == origin_of(url) + "/robots.txt"


def judge(status: int) -> Literal["parse", "allow", "retry"]:
    """What the answer to the request for robots.txt means.

    Redirects are the caller's to follow, ``MAX_REDIRECTS`` at most; one that is left over means
    that there is no file. Nor is there one after 4xx, and all is allowed. When the host is
    throttling or failing nothing is known, and nothing may be fetched until it answers.
    """
    if 200 <= status < 300:
        return "parse"
    if 300 <= status < 500 and status != 429:
        return "allow"
    return "retry"


def product_token(user_agent: str) -> str:
    """The name robots.txt knows a crawler by, in lower case: ``weft`` for ``Weft/0.1 (web crawler)``.

    Also of the form ``Mozilla/5.0 (compatible; Weft/0.1)``. Empty if there is none.
    """
    match = _compatible(user_agent)
    if match:
        return match[1].lower()
    match = _token(user_agent.strip())
    return match[0].lower() if match else ""


class _View:
    """The file as one crawler has to read it; ``rules`` is None when it may go everywhere.

    ``begins`` are the plain beginnings of what is forbidden: a path in plain characters that begins like none of them
    needs no closer look, and few paths do.
    """

    __slots__ = ("begins", "delay", "rules", "sitemaps")

    def __init__(self, text: str, token: str) -> None:
        lines, sitemaps = _addressed(text, token)
        self.sitemaps = tuple(dict.fromkeys(sitemaps))
        self.delay = max((_seconds(value) for field, value in lines if field == "delay"), default=0.0) or None
        self.rules: Protego | None = None
        self.begins = tuple(_beginning(value) for field, value in lines if field == "disallow" and value)
        if self.begins:
            rules = [f"{field}: {value}" for field, value in lines if field in ("allow", "disallow")]
            self.rules = Protego.parse("\n".join(["User-agent: *", *rules]))


def _beginning(rule: str) -> str:
    found = _plain(rule)
    return found[0] if found else ""


class Robots:
    """The robots.txt of one origin, for canonical URLs of that origin."""

    __slots__ = ("_views", "body")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self._views: dict[str, _View] = {}

    def allowed(self, url: str, user_agent: str) -> bool:
        """Whether a crawler of this name may fetch the URL."""
        view = self._views.get(user_agent) or self._view(user_agent)
        if view.rules is None or ("%" not in url and not url.startswith(view.begins, len(origin_of(url)))):
            return True
        return view.rules.can_fetch(url, "*")

    def crawl_delay(self, user_agent: str) -> float | None:
        """Seconds the site asks to leave between requests; as written, so bound it."""
        return (self._views.get(user_agent) or self._view(user_agent)).delay

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """As they are written, which should be, but may not be, absolute URLs."""
        view = next(iter(self._views.values()), None) or self._view("")
        return view.sitemaps

    def _view(self, user_agent: str) -> _View:
        if len(self._views) >= _MAX_VIEWS:
            self._views.clear()
        text = self.body.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
        view = self._views[user_agent] = _View(text, product_token(user_agent))
        return view


def parse(body: bytes, *, cut: bool = False) -> Robots:
    """Any bytes at all; past ``MAX_BYTES`` they are ignored from the last whole line on.

    ``cut``: they are the beginning of a longer file. Half a line would be another rule: of ``Disallow: /private/``, the
    first eleven characters close the whole site.
    """
    if cut or len(body) > MAX_BYTES:
        head = body[:MAX_BYTES]
        body = head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]
    return Robots(body)


def dump(robots: Robots) -> bytes:
    """What :func:`load` makes an equal one from; for a store that workers share."""
    return robots.body


def load(dumped: bytes) -> Robots:
    return parse(dumped)


ALLOW_ALL: Final = Robots(b"")
"""What a host's file stands for while it can't be had; see :func:`judge`."""


def _addressed(text: str, token: str) -> tuple[list[tuple[str, str]], list[str]]:
    """The rules for the crawler ``token``, or those for everyone if it is not named; and the sitemaps."""
    ours: list[tuple[str, str]] = []
    everyones: list[tuple[str, str]] = []
    sitemaps: list[str] = []
    named = us = everyone = naming = False
    for line in text.splitlines():
        line = line.partition("#")[0]
        match = _line(line)
        if match is None:
            continue
        field, value = match.lastgroup, line[match.end() :].strip()
        if field == "agent":
            if not naming:
                us = everyone = False
                naming = True
            if _everyone(value):
                everyone = True
            elif token and (found := _token(value)) and found[0].lower() == token:
                us = named = True
        elif field == "sitemap":
            if value:
                sitemaps.append(value)
        else:
            naming = False
            rule = (field or "", value)
            if us:
                ours.append(rule)
            if everyone:
                everyones.append(rule)
    return ours if named else everyones, sitemaps


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
