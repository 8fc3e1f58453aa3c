"""Cookies: those that hosts set, and a request's own.

The jar keeps the cookies of a site, which is a name that somebody can register and all that is below it, together. A
host sets none for names that are not of one site alone (``Domain=com``), by the public suffix list. All is bounded, as
hosts may set what they like: how much is kept of a site, for how many sites, and how much is sent.

Which cookies belong to a request is for the HTTP library's store to know.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections import OrderedDict
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from pyreqwest.cookie import Cookie, CookieStore

from weft.model import Headers, Request
from weft.model.url import hostname_of

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

_MOST_SITES: Final = 10_000
_MOST_OF_A_SITE: Final = 1_000
_MOST_AT_ONCE: Final = 100
_LONGEST: Final = 4096
_LONGEST_HEADER: Final = 8000  # more is refused by many servers


class Jar:
    """Cookies of the sites that were asked last."""

    def __init__(self) -> None:
        self._sites: OrderedDict[str, _Shelf] = OrderedDict()

    def matching(self, url: str) -> list[Cookie]:
        """Those to be sent there, of longer paths first.

        :raises ValueError: no host has such a name.
        """
        if not self._sites:
            return []
        shelf = self._sites.get(site := _site_of(hostname_of(url)))
        if shelf is None:
            return []
        self._sites.move_to_end(site)
        return sorted(shelf.store.matches(url), key=lambda cookie: -len(cookie.path or ""))

    def keep(self, headers: Headers, url: str) -> None:
        """What the host at ``url`` set, as far as it may."""
        if headers.get("set-cookie") is None:
            return
        host = hostname_of(url)
        site = _site_of(host)
        shelf = self._sites.setdefault(site, _Shelf())
        self._sites.move_to_end(site)
        if len(self._sites) > _MOST_SITES:
            self._sites.popitem(last=False)
        for text in headers.get_all("set-cookie")[:_MOST_AT_ONCE]:
            with contextlib.suppress(ValueError):
                if len(text) <= _LONGEST and _is_for_one_site(Cookie.parse(text), host):
                    shelf.insert(text, url)


class _Shelf:
    """The cookies of one site."""

    __slots__ = ("_inserted", "store")

    def __init__(self) -> None:
        self.store = CookieStore()
        self._inserted = 0

    def insert(self, text: str, url: str) -> None:
        self.store.insert(text, url)
        self._inserted += 1
        if self._inserted > _MOST_OF_A_SITE:  # though most of them may have replaced one another
            self._inserted = len(self.store.get_all_any())
            if self._inserted > _MOST_OF_A_SITE:
                self.store.clear()
                self._inserted = 0


def cookie_header(jar: Jar | None, request: Request) -> str:
    """What to send: the jar's and the request's own, which win; empty if there are none."""
    kept = jar.matching(request.url) if jar is not None else ()
    if not kept and not request.cookies:
        return ""
    own = [f"{name}={value}" for name, value in request.cookies.items()]
    room = _LONGEST_HEADER - sum(map(len, own))
    found = []
    for cookie in kept:
        pair = f"{cookie.name}={cookie.value}"
        if cookie.name not in request.cookies and (room := room - len(pair) - 2) >= 0:
            found.append(pair)
    return "; ".join(found + own)


def _is_for_one_site(cookie: Cookie, host: str) -> bool:
    domain = (cookie.domain or "").lstrip(".").lower()
    return not domain or domain == host or not _suffixes().is_public(domain)


@lru_cache(maxsize=_MOST_SITES)
def _site_of(host: str) -> str:
    if host.startswith("[") or "." not in host:
        return host
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return _suffixes().privatesuffix(host) or host


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # its list takes a tenth of a second to read

    return PublicSuffixList()
