"""Cookies: the jar that keeps what hosts set, and the ``Cookie`` header of a request.

:mod:`uttu.policy.cookies` decides what a ``Set-Cookie`` header means and which requests a cookie belongs to. The jar
stores. Its layout lets a request look only at cookies that can belong to it:

    site (registered domain, example.org)  →  domain (www.example.org)  →  key  →  cookie

Hosts decide how many cookies they set, so the jar is bounded: ``_MOST_AT_ONCE`` cookies per response,
``_MOST_OF_A_SITE`` per site, ``_MOST_SITES`` sites and ``_MOST_BYTES`` in total. The least recently used site goes
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

_MOST_SITES: Final = 10_000
_MOST_OF_A_SITE: Final = 1_000
_MOST_AT_ONCE: Final = 100
_MOST_BYTES: Final = 32 * 1024 * 1024
_LONGEST_HEADER: Final = 8000  # characters; many servers refuse more

_creations = itertools.count()
_Key = tuple[str, str, bool, str]


class _Kept:
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

    def matching(self, url: str) -> list[Cookie]:
        """The cookies to send to ``url``: longer paths first, then older cookies first.

        :raises ValueError: the host of ``url`` is not a valid name.
        """
        if not self._sites:
            return []
        site = self._sites.get(name := site_of(host := hostname_of(url)))
        if site is None:
            return []
        self._sites.move_to_end(name)
        return site.matching(CookieTarget(host, path_of(url), url.startswith("https:")), time.time())

    def keep(self, headers: Headers, url: str) -> None:
        """Keep the cookies that a response from ``url`` sets, if the host is allowed to set them."""
        if headers.get("set-cookie") is None:
            return
        now = time.time()
        self._keep((SetCookie(url, to_wire(text), now) for text in headers.get_all("set-cookie")[:_MOST_AT_ONCE]), now)

    def adopt(self, carried: Iterable[SetCookie]) -> None:
        """Keep the cookies that redirects on the way to a request set, unless the jar has newer ones."""
        self._keep(carried, time.time())

    def _keep(self, received: Iterable[SetCookie], now: float) -> None:
        for each in received:
            place = CookieTarget.of(each.url)
            cookie = parse_set_cookie(each.text, place, each.at)
            if cookie is None:
                continue
            name = site_of(place.host)
            site = self._sites.setdefault(name, _Site())
            self._sites.move_to_end(name)
            self._bytes += site.insert(cookie, place, each.at, now)
        while len(self._sites) > _MOST_SITES or self._bytes > _MOST_BYTES:
            self._bytes -= self._sites.popitem(last=False)[1].bytes


class _Site:
    """The cookies of one site."""

    __slots__ = ("_domains", "_secure", "bytes", "count")

    def __init__(self) -> None:
        self._domains: dict[str, dict[_Key, _Kept]] = {}
        self._secure: set[str] = set()  # names of Secure cookies; may include names of evicted ones
        self.bytes = 0
        self.count = 0

    def matching(self, place: CookieTarget, now: float) -> list[Cookie]:
        found: list[_Kept] = []
        domain = place.host
        while domain:  # www.example.org, example.org, org
            if cookies := self._domains.get(domain):
                found += [
                    kept for kept in cookies.values() if kept.cookie.expires > now and belongs(kept.cookie, place)
                ]
            domain = domain.partition(".")[2]
        if len(found) > 1:
            found.sort(key=lambda kept: (-len(kept.cookie.path), kept.created))
        return [kept.cookie for kept in found]

    def insert(self, cookie: Cookie, place: CookieTarget, at: float, now: float) -> int:
        """Keep a cookie. Returns by how many bytes the site has grown."""
        kept = self._domains.get(cookie.domain, {}).get(cookie.key)
        if kept is not None and kept.updated > at:
            return 0
        if not place.secure and cookie.name in self._secure and self._shadows_secure(cookie, now):
            return 0
        if cookie.secure:
            self._secure.add(cookie.name)
        before = self.bytes
        if kept is None:
            self._domains.setdefault(cookie.domain, {})[cookie.key] = _Kept(cookie, at)
            self.count += 1
            self.bytes += _size(cookie)
            if self.count > _MOST_OF_A_SITE:
                self._evict(now)
        else:
            self.bytes += _size(cookie) - _size(kept.cookie)
            if kept.cookie.expires <= at:  # the old one was deleted, so this counts as a new cookie
                kept.created = next(_creations)
            kept.cookie, kept.updated = cookie, at
        return self.bytes - before

    def _shadows_secure(self, cookie: Cookie, now: float) -> bool:
        """Whether a cookie set over plain HTTP would replace or hide a Secure cookie."""
        return any(
            kept.cookie.secure
            and kept.cookie.name == cookie.name
            and kept.cookie.expires > now
            and (domain_matches(domain, cookie.domain) or domain_matches(cookie.domain, domain))
            and path_matches(cookie.path, kept.cookie.path)
            for domain, cookies in self._domains.items()
            for kept in cookies.values()
        )

    def _evict(self, now: float) -> None:
        """Drop expired cookies, then the least recently set ones, until a quarter of the site's room is free."""
        everything = [kept for cookies in self._domains.values() for kept in cookies.values()]
        everything.sort(key=lambda kept: (kept.cookie.expires > now, kept.updated))
        excess = len(everything) - _MOST_OF_A_SITE * 3 // 4
        for kept in everything[:excess]:
            cookie = kept.cookie
            del self._domains[cookie.domain][cookie.key]
            if not self._domains[cookie.domain]:
                del self._domains[cookie.domain]
            self.bytes -= _size(cookie)
        self.count -= excess
        self._secure = {kept.cookie.name for kept in everything[excess:] if kept.cookie.secure}


def _size(cookie: Cookie) -> int:
    return len(cookie.name) + len(cookie.value) + len(cookie.path) + len(cookie.domain) + 500  # 500: object overhead


def cookie_header(jar: CookieJar | None, request: Request) -> str:
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
    kept = jar.matching(request.url) if jar is not None else ()
    if not kept and not own:
        return ""
    pairs = [f"{name}={value}" for name, value in own.items()]
    room = _LONGEST_HEADER - sum(map(len, pairs))
    found = []
    for cookie in kept:
        pair = to_text(f"{cookie.name}={cookie.value}")
        if cookie.name not in own and (room := room - len(pair) - 2) >= 0:
            found.append(pair)
    return "; ".join(found + pairs)
