"""Cookies: the jar that stores the cookies of hosts, and the ``Cookie`` header of a request.

:mod:`uttu.policy.cookies` decides what a ``Set-Cookie`` header means and which requests a cookie belongs to. The jar
stores. Its layout lets a request look only at cookies that can belong to it:

    site (registered domain, example.org)  →  domain (www.example.org)  →  key  →  cookie

Hosts decide how many cookies they set, so the jar is bounded: ``_MAX_PER_RESPONSE`` cookies per response,
``_MAX_PER_SITE`` per site, ``_MAX_SITES`` sites and ``_MAX_BYTES`` in total. The least recently used site goes
first.

A deleted cookie stays in the jar as an expired one until the room is needed: a redirect that another worker received
may carry an older value of it (:meth:`CookieJar.adopt`), and then the newer entry, the deletion, must win.
"""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from uttu.model import Headers, Request
from uttu.model.request import SetCookie
from uttu.model.url import hostname_of
from uttu.policy.cookies import (
    Cookie,
    CookieTarget,
    belongs,
    domain_matches,
    parse_set_cookie,
    path_matches,
    path_of,
    site_of,
    to_text,
    to_wire,
)
from uttu.policy.redirect import select_carried_cookies

_MAX_SITES: Final = 10_000
_MAX_PER_SITE: Final = 1_000
_MAX_PER_RESPONSE: Final = 100
_MAX_BYTES: Final = 32 * 1024 * 1024
_MAX_HEADER_LENGTH: Final = 8000  # characters; many servers refuse more

_creations = itertools.count()
_Key = tuple[str, str, bool, str]


class _StoredCookie:
    """A cookie in the jar, the Unix time when it was last set, and its number in the order of creation."""

    __slots__ = ("cookie", "created", "updated")

    def __init__(self, cookie: Cookie, updated: float) -> None:
        self.cookie = cookie
        self.created = next(_creations)
        self.updated = updated


class CookieJar:
    """The cookies of the most recently used sites."""

    def __init__(self) -> None:
        self._sites: OrderedDict[str, _Site] = OrderedDict()
        self._bytes = 0

    @property
    def is_empty(self) -> bool:
        return not self._sites

    def find_matching(self, url: str) -> list[Cookie]:
        """The cookies to send to ``url``: longer paths first, then older cookies first.

        :raises ValueError: the host of ``url`` is not a valid name.
        """
        if not self._sites:
            return []
        site = self._sites.get(name := site_of(host := hostname_of(url)))
        if site is None:
            return []
        self._sites.move_to_end(name)
        return site.find_matching(CookieTarget(host, path_of(url), url.startswith("https:")), time.time())

    def store(self, headers: Headers, url: str) -> None:
        """Store the cookies that a response from ``url`` sets, if the host is allowed to set them."""
        if headers.get("set-cookie") is None:
            return
        now = time.time()
        self._store(
            (SetCookie(url, to_wire(text), now) for text in headers.get_all("set-cookie")[:_MAX_PER_RESPONSE]), now
        )

    def adopt(self, carried: Iterable[SetCookie]) -> None:
        """Store the cookies that redirects on the way to a request set, unless the jar has newer ones."""
        self._store(carried, time.time())

    def _store(self, received: Iterable[SetCookie], now: float) -> None:
        for each in received:
            target = CookieTarget.of(each.url)
            cookie = parse_set_cookie(each.text, target, each.at)
            if cookie is None:
                continue
            name = site_of(target.host)
            site = self._sites.setdefault(name, _Site())
            self._sites.move_to_end(name)
            self._bytes += site.insert(cookie, target, each.at, now)
        while len(self._sites) > _MAX_SITES or self._bytes > _MAX_BYTES:
            self._bytes -= self._sites.popitem(last=False)[1].bytes


class _Site:
    """The cookies of one site."""

    __slots__ = ("_domains", "_secure", "bytes", "count")

    def __init__(self) -> None:
        self._domains: dict[str, dict[_Key, _StoredCookie]] = {}
        self._secure: set[str] = set()  # names of Secure cookies; may include names of evicted ones
        self.bytes = 0
        self.count = 0

    def find_matching(self, target: CookieTarget, now: float) -> list[Cookie]:
        matches: list[_StoredCookie] = []
        domain = target.host
        while domain:  # www.example.org, example.org, org
            if cookies := self._domains.get(domain):
                matches += [
                    stored
                    for stored in cookies.values()
                    if stored.cookie.expires > now and belongs(stored.cookie, target)
                ]
            domain = domain.partition(".")[2]
        if len(matches) > 1:
            matches.sort(key=lambda stored: (-len(stored.cookie.path), stored.created))
        return [stored.cookie for stored in matches]

    def insert(self, cookie: Cookie, target: CookieTarget, set_at: float, now: float) -> int:
        """Store a cookie. Returns by how many bytes the site has grown."""
        stored = self._domains.get(cookie.domain, {}).get(cookie.key)
        if stored is not None and stored.updated > set_at:
            return 0
        if not target.secure and cookie.name in self._secure and self._shadows_secure(cookie, now):
            return 0
        if cookie.secure:
            self._secure.add(cookie.name)
        before = self.bytes
        if stored is None:
            self._domains.setdefault(cookie.domain, {})[cookie.key] = _StoredCookie(cookie, set_at)
            self.count += 1
            self.bytes += _estimate_size(cookie)
            if self.count > _MAX_PER_SITE:
                self._evict(now)
        else:
            self.bytes += _estimate_size(cookie) - _estimate_size(stored.cookie)
            if stored.cookie.expires <= set_at:  # the old one was deleted, so this counts as a new cookie
                stored.created = next(_creations)
            stored.cookie, stored.updated = cookie, set_at
        return self.bytes - before

    def _shadows_secure(self, cookie: Cookie, now: float) -> bool:
        """Whether a cookie set over plain HTTP would replace or hide a Secure cookie."""
        return any(
            stored.cookie.secure
            and stored.cookie.name == cookie.name
            and stored.cookie.expires > now
            and (domain_matches(domain, cookie.domain) or domain_matches(cookie.domain, domain))
            and path_matches(cookie.path, stored.cookie.path)
            for domain, cookies in self._domains.items()
            for stored in cookies.values()
        )

    def _evict(self, now: float) -> None:
        """Drop expired cookies, then the least recently set ones, until a quarter of the site's room is free."""
        all_stored = [stored for cookies in self._domains.values() for stored in cookies.values()]
        all_stored.sort(key=lambda stored: (stored.cookie.expires > now, stored.updated))
        excess = len(all_stored) - _MAX_PER_SITE * 3 // 4
        for stored in all_stored[:excess]:
            cookie = stored.cookie
            del self._domains[cookie.domain][cookie.key]
            if not self._domains[cookie.domain]:
                del self._domains[cookie.domain]
            self.bytes -= _estimate_size(cookie)
        self.count -= excess
        self._secure = {stored.cookie.name for stored in all_stored[excess:] if stored.cookie.secure}


def _estimate_size(cookie: Cookie) -> int:
    return len(cookie.name) + len(cookie.value) + len(cookie.path) + len(cookie.domain) + 500  # 500: object overhead


def build_cookie_header(jar: CookieJar | None, request: Request) -> str:
    """The ``Cookie`` header of ``request``; empty if there are no cookies. Bytes that are not UTF-8 are surrogates.

    The jar's cookies come first, then the request's own, which replace cookies of the same name from the jar. A request
    also carries the cookies that redirects set on the way to it (``request.carried``). The jar adopts them with their
    domains and paths, so they are then sent from the jar and not as the request's own.
    """
    own = request.cookies
    if request.carried and jar is not None:
        carried = [each for each in request.carried if not each.is_own]
        jar.adopt(carried)
        known = select_carried_cookies(request.url, carried)
        own = {name: value for name, value in own.items() if known.get(name) != value}
    stored = jar.find_matching(request.url) if jar is not None else ()
    if not stored and not own:
        return ""
    pairs = [f"{name}={value}" for name, value in own.items()]
    room = _MAX_HEADER_LENGTH - sum(map(len, pairs))
    matches = []
    for cookie in stored:
        pair = to_text(f"{cookie.name}={cookie.value}")
        if cookie.name not in own and (room := room - len(pair) - 2) >= 0:
            matches.append(pair)
    return "; ".join(matches + pairs)
