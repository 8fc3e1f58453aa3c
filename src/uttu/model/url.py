"""Join and normalise URLs by the WHATWG standard, and compute the identity of a request.

Every page has dozens of links to join, so there is a fast path that takes a quarter of the time. Most links are a URL,
a path or a query in plain characters. For these the standard's result is a simple concatenation, and a regular
expression checks that no character needs the full algorithm. Fragments are dropped, and links such as ``mailto:`` lead
nowhere. All other links go through ada, a complete implementation of the standard. A property test checks that both
give the same results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import ada_url
import xxhash

_SIGN: Final = 1 << 63
_WRAP: Final = 1 << 64
# The characters that the standard strips from both ends of a link; str.strip() would strip more.
_SPACE: Final = "".join(map(chr, range(0x21)))

# Characters that the standard does not encode, strip or rewrite, provided that no segment of the path begins with a
# dot, which may be written as "%2e".
_PATH: Final = r"[A-Za-z0-9_~!$&()*+,;=:@./%-]*"
_QUERY: Final = r"(?:\?[A-Za-z0-9_~!$&()*+,;=:@./?%-]*)?"
_plain_path: Final = re.compile(rf"/(?!/){_PATH}{_QUERY}").fullmatch
_plain_query: Final = re.compile(_QUERY).fullmatch
# A path without a leading slash. ":" is not allowed in the first segment, where it would end a scheme.
_plain_relative: Final = re.compile(rf"[A-Za-z0-9_~-][A-Za-z0-9_~.-]*(?:/{_PATH})?{_QUERY}").fullmatch
# An origin that needs no parsing: a lower-case name without punycode under an alphabetic top-level domain, or four
# decimal numbers; and no default port.
_BYTE: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_NAME: Final = r"(?:(?!xn--)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}"
_PORT: Final = r"(?::(?!80$|443$)(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}))?"
_plain_origin: Final = re.compile(rf"https?://(?:{_NAME}|{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}){_PORT}").fullmatch
_other_scheme: Final = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE).match


def origin_of(url: str) -> str:
    """``https://host:port`` of a canonical URL."""
    end = url.find("/", url.index("//") + 2)
    return url if end < 0 else url[:end]


def host_of(url: str) -> str:
    """The host of a canonical URL, with its port if that is not the scheme's default."""
    begin = url.index("//") + 2
    end = url.find("/", begin)
    authority = url[begin:] if end < 0 else url[begin:end]
    return authority.rpartition("@")[2] if "@" in authority else authority


def hostname_of(url: str) -> str:
    """The host of a canonical URL without its port; an IPv6 address keeps its brackets."""
    return without_port(host_of(url))


def without_port(host: str) -> str:
    head, colon, tail = host.rpartition(":")
    return head if colon and not tail.endswith("]") else host


def canonical(url: str) -> str:
    """The canonical form of ``url``: parsed, serialised, without its fragment.

    :raises ValueError: it is not an absolute http(s) URL.
    """
    if not _has_dots(url) and _is_plain(url):
        return url
    parsed = _normalize(url)
    if parsed is None:
        raise ValueError(f"not an absolute http or https URL: {url!r}")
    return parsed


QueryEncoder = Callable[[str], str]
"""Percent-encodes the non-ASCII characters of a query, in an encoding other than UTF-8."""


class Joiner:
    """Joins the links of one page to its canonical URL. Spaces around links are ignored.

    :param encode_query: Encodes the queries of links on a page in a legacy encoding. By default, and for all other
        parts of a URL, the encoding is UTF-8.
    """

    __slots__ = ("_base", "_folder", "_path", "encode_query", "origin")

    def __init__(self, base: str, encode_query: QueryEncoder | None = None) -> None:
        self.origin = origin_of(base)
        self.encode_query = encode_query
        self._base = base
        self._path = base.partition("?")[0]
        self._folder = self._path.rpartition("/")[0] + "/"

    def __call__(self, link: str) -> str | None:
        """Join one link; None if the result is not an http(s) URL."""
        link = link.strip(_SPACE)
        reference = link.partition("#")[0] if "#" in link else link
        if not reference:
            return self._base
        if not _has_dots(reference):
            if reference[0] == "/":
                if _plain_path(reference):
                    return self.origin + reference
            elif reference.startswith("http"):
                if _is_plain(reference):
                    return reference
            elif _plain_relative(reference):
                return self._folder + reference
            elif reference[0] == "?" and _plain_query(reference):
                return self._path + reference
        if _other_scheme(reference):
            return None
        if self.encode_query is not None:
            link = self.with_encoded_query(link)
        return _normalize(link, self._base)

    def with_encoded_query(self, link: str) -> str:
        """The link with its query percent-encoded in the page's encoding; unchanged if the link is ASCII."""
        if self.encode_query is None or link.isascii():
            return link
        rest, hash_sign, fragment = link.partition("#")
        path, question_mark, query = rest.partition("?")
        return path + question_mark + self.encode_query(query) + hash_sign + fragment

    def all(self, links: Iterable[str]) -> list[str]:
        """Join links; returns the distinct http(s) URLs in order."""
        return list(dict.fromkeys(url for url in map(self, links) if url is not None))


def is_fixed(link: str) -> bool:
    """Whether a link means the same URL on every page of an origin."""
    return link.startswith(("/", "http://", "https://"))


def _has_dots(reference: str) -> bool:
    """Whether a segment of its path may begin with a dot."""
    return "/." in reference or ("%" in reference and "%2e" in reference.lower())


def _is_plain(url: str) -> bool:
    """Whether an absolute URL without dots and fragment is canonical by its characters alone."""
    path = url.find("/", 8)  # after https://
    return path > 0 and _is_plain_origin(url[:path]) and _plain_path(url, path) is not None


@lru_cache(maxsize=4096)
def _is_plain_origin(origin: str) -> bool:
    return _plain_origin(origin) is not None


def _normalize(link: str, base: str | None = None) -> str | None:
    try:
        href = ada_url.normalize_url(link) if base is None else ada_url.join_url(base, link)
    except ValueError:  # also UnicodeEncodeError, for lone surrogates
        return None
    if not href.startswith(("http://", "https://")):
        return None
    return href.partition("#")[0]


def fingerprint(url: str, method: str = "GET", body: bytes | None = None, salt: str = "") -> int:
    """The identity of a request: a signed 64-bit number over method, canonical URL and body.

    Among ten million requests, the probability that any two collide is 3 in a million.
    """
    if method == "GET" and not body and not salt:
        digest = xxhash.xxh3_64_intdigest(url.encode())
    else:
        digest = xxhash.xxh3_64_intdigest(b"\0".join((method.encode(), url.encode(), salt.encode(), body or b"")))
    return digest if digest < _SIGN else digest - _WRAP
