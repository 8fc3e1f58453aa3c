"""URLs by the WHATWG standard, and the identity of a request.

Links are joined by the dozen for every page, so there are two ways. Most links of most sites are
a path on the same host written in plain characters; for these the standard's answer is simple
concatenation, and a regular expression proves that nothing in them needs the full algorithm.
Everything else goes through ada, the parser that browsers' runtimes use. A property test holds
the two ways equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import ada_url
import xxhash

_SIGN: Final = 1 << 63
_WRAP: Final = 1 << 64
# What the standard takes off both ends of a link; str.strip() would take more.
_SPACE: Final = "".join(map(chr, range(0x21)))

# What the standard leaves exactly as it stands, provided that no segment of the path begins with a dot: nothing
# in it is percent-encoded, stripped or rewritten. "%" stays out of paths because "%2e" is a dot, too.
_PATH: Final = r"[A-Za-z0-9_~!$&()*+,;=:@./-]*"
_QUERY: Final = r"(?:\?[A-Za-z0-9_~!$&()*+,;=:@./?%-]*)?"
_plain_path: Final = re.compile(rf"/(?!/){_PATH}{_QUERY}").fullmatch
# Without a leading slash; ":" stays out of the first segment, where it would end a scheme.
_plain_relative: Final = re.compile(rf"[A-Za-z0-9_~-][A-Za-z0-9_~.-]*(?:/{_PATH})?{_QUERY}").fullmatch
# An absolute URL whose host needs no looking at: a lower-case name under an alphabetic top-level domain and
# without punycode, or four plain decimal numbers; a port that is nobody's default.
_BYTE: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_NAME: Final = r"(?:(?!xn--)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}"
_PORT: Final = r"(?::(?!80/|443/)(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}))?"
_plain_url: Final = re.compile(
    rf"https?://(?:{_NAME}|{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}){_PORT}/{_PATH}{_QUERY}"
).fullmatch


def origin_of(url: str) -> str:
    """``https://host:port`` of a canonical URL."""
    end = url.find("/", url.index("//") + 2)
    return url if end < 0 else url[:end]


def host_of(url: str) -> str:
    """Host and, where it is not the scheme's own, port of a canonical URL."""
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
    """The one spelling of ``url``: parsed, serialised, without its fragment.

    :raises ValueError: it is not an absolute http(s) URL.
    """
    if "/." not in url and _plain_url(url):
        return url
    parsed = _normalize(url)
    if parsed is None:
        raise ValueError(f"not an absolute http or https URL: {url!r}")
    return parsed


class Joiner:
    """Joins the links of one page, as they stand there, to its canonical URL; space around them does not count."""

    __slots__ = ("_base", "_folder", "origin")

    def __init__(self, base: str) -> None:
        self.origin = origin_of(base)
        self._base = base
        self._folder = base.partition("?")[0].rpartition("/")[0] + "/"

    def __call__(self, link: str) -> str | None:
        """One link; None if it leads to no web page."""
        link = link.strip(_SPACE)
        if "/." not in link:
            if link.startswith("/"):
                if _plain_path(link):
                    return self.origin + link
            elif link.startswith("http"):
                if _plain_url(link):
                    return link
            elif _plain_relative(link):
                return self._folder + link
        return _normalize(link, self._base)

    def all(self, links: Iterable[str]) -> list[str]:
        """Those of the links that lead to web pages, each once, in order."""
        return list(dict.fromkeys(url for url in map(self, links) if url is not None))


def is_fixed(link: str) -> bool:
    """Whether a link leads to the same place from every page of a host."""
    return link.startswith(("/", "http://", "https://"))


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

    Two requests of ten million share one by accident with a probability of 3 in a million.
    """
    if method == "GET" and not body and not salt:
        digest = xxhash.xxh3_64_intdigest(url.encode())
    else:
        digest = xxhash.xxh3_64_intdigest(b"\0".join((method.encode(), url.encode(), salt.encode(), body or b"")))
    return digest if digest < _SIGN else digest - _WRAP
