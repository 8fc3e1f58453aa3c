"""Parse robots.txt by RFC 9309, with protego.

Protego evaluates rules: wildcards, precedence, percent-encoding. This module selects the lines that apply to this
crawler, because protego compares user agents by prefix ("User-agent: ut" would match Uttu) and reads any unknown line
as the end of a group. The RFC compares product tokens and ignores lines that it does not define. Only the selected
lines go to protego. So a hostile file with thousands of groups costs time in proportion to its length, and a file
without rules for this crawler costs nothing per page.

There is one deviation: the RFC does not define ``Crawl-delay``, so it would read this common file

    User-agent: *
    Crawl-delay: 10

    User-agent: BadBot
    Disallow: /

as one group with two names that forbids everything to everyone. Here, lines that other crawlers accept as members of
a group end the group's list of names, which is what the author meant.

:func:`classify_status` says what the status of the response means.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from protego import Protego

from uttu.model.url import origin_of

MAX_BYTES: Final = 512 * 1024
"""How much of a file is read. The RFC requires at least 500 KiB."""
ROBOTS_SECONDS: Final = 24 * 3600
"""How long a file may be kept before it is fetched again."""
MAX_CRAWL_DELAY: Final = 300.0
"""Default of the setting ``max_crawl_delay``: pages of sites with a longer Crawl-delay are given up."""
AWAY_SECONDS: Final = 60
"""How long a site counts as unavailable after the last failed attempt for its file, in seconds."""
MAX_REDIRECTS: Final = 5
"""The most redirects to follow to the file; after one more, the file counts as missing."""

_MAX_VIEWS: Final = 16
_TOKEN: Final = r"[A-Za-z0-9_.-]+"
_token: Final = re.compile(_TOKEN).match
_compatible: Final = re.compile(rf"Mozilla/[^(]*\(compatible;\s*({_TOKEN})").match
# The beginning of a rule that has no wildcards or encoded characters, so a URL contains it literally.
_plain: Final = re.compile(r"(?:/[A-Za-z0-9/_.~-]*)?").match
_everyone: Final = re.compile(r"\*(?:\s|$)").match
# Common misspellings and a missing colon are accepted, as protego and Google do.
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
    """Whether a canonical URL is the path of its site's robots.txt."""
    return url == origin_of(url) + "/robots.txt"


def classify_status(status: int) -> Literal["parse", "allow", "retry"]:
    """Decide how to treat a response to the request for robots.txt.

    ``parse``: read the file. ``allow``: the file is missing, so everything is allowed; after a 4xx, and after a
    redirect that the caller did not follow (``MAX_REDIRECTS``). ``retry``: the host throttles or fails, so nothing may
    be fetched until it answers.
    """
    if 200 <= status < 300:
        return "parse"
    if 300 <= status < 500 and status != 429:
        return "allow"
    return "retry"


def product_token(user_agent: str) -> str:
    """The name that robots.txt uses for a crawler, in lower case: ``uttu`` for ``Uttu/0.1 (web crawler)``.

    Also reads the form ``Mozilla/5.0 (compatible; Uttu/0.1)``. Empty if the user agent has no such name.
    """
    match = _compatible(user_agent)
    if match:
        return match[1].lower()
    match = _token(user_agent.strip())
    return match[0].lower() if match else ""


class _View:
    """The rules of a file for one crawler; ``rules`` is None if it may fetch everything.

    ``begins`` are the literal beginnings of the ``Disallow`` rules. A path without percent-encoding that starts with
    none of them is allowed without asking protego, which is true for most paths.
    """

    __slots__ = ("begins", "delay", "rules", "sitemaps")

    def __init__(self, text: str, token: str) -> None:
        lines, sitemaps = _select_lines(text, token)
        self.sitemaps = tuple(dict.fromkeys(sitemaps))
        self.delay = max((_seconds(value) for field, value in lines if field == "delay"), default=0.0) or None
        self.rules: Protego | None = None
        self.begins = tuple(_literal_prefix(value) for field, value in lines if field == "disallow" and value)
        if self.begins:
            rules = [f"{field}: {value}" for field, value in lines if field in ("allow", "disallow")]
            self.rules = Protego.parse("\n".join(["User-agent: *", *rules]))


def _literal_prefix(rule: str) -> str:
    match = _plain(rule)
    return match[0] if match else ""


class Robots:
    """The robots.txt of one origin, for canonical URLs of that origin."""

    __slots__ = ("_views", "body")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self._views: dict[str, _View] = {}

    def allowed(self, url: str, user_agent: str) -> bool:
        """Whether a crawler with this user agent may fetch the URL."""
        view = self._views.get(user_agent) or self._view(user_agent)
        if view.rules is None or ("%" not in url and not url.startswith(view.begins, len(origin_of(url)))):
            return True
        return view.rules.can_fetch(url, "*")

    def crawl_delay(self, user_agent: str) -> float | None:
        """The Crawl-delay in seconds, as written: it may be years, or infinity. None if the file has no Crawl-delay."""
        return (self._views.get(user_agent) or self._view(user_agent)).delay

    @property
    def weight(self) -> int:
        """An estimate of the memory it takes after parsing, in bytes."""
        return 1500 + len(self.body) + 300 * self.body.count(b":")

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The sitemaps as written; they should be absolute URLs, but may be anything."""
        view = next(iter(self._views.values()), None) or self._view("")
        return view.sitemaps

    def _view(self, user_agent: str) -> _View:
        if len(self._views) >= _MAX_VIEWS:
            self._views.clear()
        text = self.body.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
        view = self._views[user_agent] = _View(text, product_token(user_agent))
        return view


def parse(body: bytes, *, cut: bool = False) -> Robots:
    """Parse a file of any bytes. One that is longer than ``MAX_BYTES`` is cut after its last complete line.

    Half a line would be another rule: the first eleven characters of ``Disallow: /private/`` close the whole site.

    :param cut: The body is the beginning of a longer file.
    """
    if cut or len(body) > MAX_BYTES:
        head = body[:MAX_BYTES]
        body = head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]
    return Robots(body)


def dump(robots: Robots) -> bytes:
    """Serialise for a store that workers share; see :func:`load`."""
    return robots.body


def load(dumped: bytes) -> Robots:
    return parse(dumped)


ALLOW_ALL: Final = Robots(b"")
"""The rules of a site without a robots.txt; see :func:`classify_status`."""


def _select_lines(text: str, token: str) -> tuple[list[tuple[str, str]], list[str]]:
    """The rules for the crawler ``token``, or those for ``*`` if no group names it; and the sitemaps."""
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
    return seconds if seconds > 0 else 0.0  # NaN fails the comparison
