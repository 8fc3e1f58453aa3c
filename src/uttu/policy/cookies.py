"""Parse ``Set-Cookie`` headers by RFC 6265, and decide which requests a cookie is sent with.

Pure functions: the jar that keeps cookies is :mod:`uttu.fetch.cookies`, the cookies that travel with a redirect are in
:mod:`uttu.policy.redirect`. From the RFC's revision (6265bis) come the rules of today's browsers: size limits, control
characters, the prefixes ``__Secure-`` and ``__Host-``, and that plain HTTP can't set ``Secure`` cookies. A cookie
without a name is ignored, as in RFC 6265.

Cookies are bytes without a charset. Here each character stands for one byte, so that lengths are in bytes and every
cookie can be stored as JSON: see :func:`to_wire` and :func:`to_text`. Section numbers below are those of RFC 6265.
"""

from __future__ import annotations

import re
from calendar import timegm
from datetime import datetime
from functools import cache, lru_cache
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

from uttu.model import Request
from uttu.model.url import hostname_of, origin_of

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

MAX_PAIR: Final = 4096
"""Bytes of a cookie's name and value together; a longer cookie is ignored."""
MAX_ATTRIBUTE: Final = 1024
"""Bytes of an attribute's value; a longer attribute is ignored, the cookie is kept."""
MAX_AGE_SECONDS: Final = 400 * 24 * 3600
"""The longest life of a cookie: 400 days, as in browsers."""

_SPACE: Final = " \t"
_has_control: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search
_max_age: Final = re.compile(r"-?[0-9]+").fullmatch
_is_address: Final = re.compile(r"\[.*\]|[0-9.]+").fullmatch
# The delimiters of section 5.1.1; ":" is not one of them.
_date_tokens: Final = re.compile(r"[^\t\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+").findall
_time: Final = re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?![0-9])").match
_day: Final = re.compile(r"([0-9]{1,2})(?![0-9])").match
_year: Final = re.compile(r"([0-9]{2,4})(?![0-9])").match
_login_words: Final = re.compile(
    r"/[^?]*(?:log-?in|sign-?in|auth)|\?.*(?:passw|session|token|sid=)", re.IGNORECASE
).search
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class Cookie(msgspec.Struct, frozen=True, gc=False):
    """One cookie. ``expires`` is a Unix time, infinity for a session cookie; a time in the past deletes the cookie."""

    name: str
    value: str
    domain: str
    host_only: bool
    path: str
    secure: bool
    expires: float

    @property
    def key(self) -> tuple[str, str, bool, str]:
        """The identity of a cookie: a new one replaces the one with the same key."""
        return self.name, self.domain, self.host_only, self.path


class CookieTarget(msgspec.Struct, frozen=True, gc=False):
    """The parts of a URL that decide which cookies belong to it."""

    host: str
    path: str
    secure: bool

    @classmethod
    def of(cls, url: str) -> CookieTarget:
        """The target of a canonical URL."""
        return cls(hostname_of(url), path_of(url), url.startswith("https:"))


def path_of(url: str) -> str:
    """The path of a canonical URL."""
    return url[len(origin_of(url)) :].partition("?")[0] or "/"


def to_wire(text: str) -> str:
    """Convert a header's text to one character per byte. Bytes that are not UTF-8 come as surrogate escapes."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def to_text(wire: str) -> str:
    """The inverse of :func:`to_wire`."""
    return wire if wire.isascii() else wire.encode("latin-1").decode("utf-8", "surrogateescape")


def belongs(cookie: Cookie, target: CookieTarget) -> bool:
    """Whether a cookie is sent to a URL (section 5.4). Expiry is not checked."""
    domain = cookie.domain
    if target.host != domain and (cookie.host_only or not domain_matches(target.host, domain)):
        return False
    return (target.secure or not cookie.secure) and path_matches(target.path, cookie.path)


def domain_matches(host: str, domain: str) -> bool:
    """Whether a host is within a cookie's domain (section 5.1.3). Both are in lower case."""
    return host == domain or (host.endswith("." + domain) and not _is_address(host))


def path_matches(path: str, cookie_path: str) -> bool:
    """Whether a request's path is within a cookie's path (section 5.1.4)."""
    if not path.startswith(cookie_path):
        return False
    return len(path) == len(cookie_path) or cookie_path.endswith("/") or path[len(cookie_path)] == "/"


def default_path(path: str) -> str:
    """The path of a cookie without a ``Path`` attribute, set by the page at ``path`` (section 5.1.4)."""
    return path[: path.rfind("/")] or "/" if path.startswith("/") else "/"


def parse_set_cookie(header: str, target: CookieTarget, now: float) -> Cookie | None:
    """The cookie that a ``Set-Cookie`` header sets; None if it is invalid or the host may not set it.

    :param header: The header's value, one character per byte (:func:`to_wire`).
    :param target: The URL that sent it.
    :param now: The Unix time at which it arrived.
    """
    if _has_control(header):
        return None
    pair, *attributes = header.split(";")
    name, equals, value = pair.partition("=")
    name, value = name.strip(_SPACE), value.strip(_SPACE)
    if not equals or not name or len(name) + len(value) > MAX_PAIR:
        return None
    domain = path = ""
    secure = False
    max_age = expires = None
    for attribute in attributes:
        key, _, text = attribute.partition("=")
        text = text.strip(_SPACE)
        if len(text) > MAX_ATTRIBUTE:
            continue
        # The last attribute of a name wins; invalid ones are ignored.
        match key.strip(_SPACE).lower():
            case "domain" if text:
                domain = text.removeprefix(".").lower()
            case "path":
                path = text
            case "secure":
                secure = True
            case "max-age" if _max_age(text):
                max_age = int(text)
            case "expires" if (date := parse_cookie_date(text)) is not None:
                expires = date
    if domain and _is_public(domain):
        if domain != target.host:
            return None
        domain = ""
    if (domain and not domain_matches(target.host, domain)) or (secure and not target.secure):
        return None
    prefix = name[:9].lower()
    if prefix == "__secure-" and not secure:
        return None
    if prefix.startswith("__host-") and (not secure or domain or path != "/"):
        return None
    end = inf
    if max_age is not None:
        end = now + min(max_age, MAX_AGE_SECONDS) if max_age > 0 else -inf
    elif expires is not None:
        end = min(expires, now + MAX_AGE_SECONDS)
    return Cookie(
        name=name,
        value=value,
        domain=domain or target.host,
        host_only=not domain,
        path=path if path.startswith("/") else default_path(target.path),
        secure=secure,
        expires=end,
    )


@lru_cache(maxsize=1024)
def parse_cookie_date(text: str) -> float | None:
    """The Unix time of an ``Expires`` attribute, by the algorithm of section 5.1.1; None if it is not a date."""
    time = day = month = year = None
    for token in _date_tokens(text):
        if time is None and (match := _time(token)):
            time = int(match[1]), int(match[2]), int(match[3])
        elif day is None and (match := _day(token)):
            day = int(match[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (match := _year(token)):
            year = int(match[1])
    if time is None or day is None or month is None or year is None:
        return None
    if year < 100:
        year += 1900 if year >= 70 else 2000
    if year < 1601:
        return None
    try:
        return float(timegm(datetime(year, month, day, *time).timetuple()))
    except ValueError:  # no such day or time
        return None


def looks_like_login(request: Request) -> bool:
    """Whether a cookie in the response to this request probably belongs to a login session.

    True for requests with a body, another method than GET or HEAD, an ``Authorization`` header, or a URL with a word
    such as "login". A cookie alone means little: most sites set one for every visitor.
    """
    if request.body or request.method not in ("GET", "HEAD") or _login_words(request.url):
        return True
    return any(name.lower() == "authorization" for name in request.headers)


@lru_cache(maxsize=10_000)
def site_of(host: str) -> str:
    """The registered domain of a host, by the public suffix list; the host itself if it has none."""
    if "." not in host or _is_address(host):
        return host
    return _suffixes().privatesuffix(host.removesuffix(".")) or host


@lru_cache(maxsize=10_000)
def _is_public(domain: str) -> bool:
    """Whether a domain is a public suffix, below which anybody can register names. True if it is not ASCII."""
    if _is_address(domain):
        return False
    return not domain.isascii() or bool(_suffixes().is_public(domain.removesuffix(".")))


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # imported late: reading its list takes a tenth of a second

    return PublicSuffixList()
