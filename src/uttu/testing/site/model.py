"""The description of a test site, and the addresses of its parts.

The same ``Site`` gives the same bytes on every machine and Python version, except for compressed data, which depends on
zlib. So pseudo-random numbers come from ``mix``, not from :mod:`random`.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

import msgspec

_MASK: Final = (1 << 64) - 1


def mix(seed: int, *numbers: int) -> int:
    """A pseudo-random 64-bit number that depends only on the arguments (splitmix64)."""
    x = seed & _MASK
    for number in (0, *numbers):
        x = (x + number * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        x ^= x >> 31
    return x


class Site(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The description of a test site.

    - ``hosts`` addresses, from ``base`` upward, listen on one ``port`` (0: a free one).
    - ``pages`` ordinary pages are spread over the hosts. Each has ``links`` links and is filled up to ``page_bytes``.
    - ``latency`` is the delay before every answer, in seconds.
    - ``robots`` is the text of robots.txt, a status (a 3xx redirects to ``/odd/robots.txt``, which has the default
      text), a path to redirect to, or None for the default text: everything but ``/private/`` is allowed, with
      ``crawl_delay`` if set. A tuple of these answers the requests of each host one after the other; its last entry
      answers all further ones.
    - ``certificate`` and ``key`` are PEM files. With them the site speaks https.
    """

    seed: int = 1
    hosts: int = 1
    pages: int = 1000
    links: int = 32
    page_bytes: int = 6000
    products: int = 200
    latency: float = 0.0
    robots: str | int | tuple[str | int | None, ...] | None = None
    crawl_delay: float | None = None
    base: str = "127.77.0.1"
    port: int = 0
    certificate: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if self.hosts < 1 or self.pages < 1 or self.products < 1:
            raise ValueError("a site has at least one host, one page and one product")
        if self.links < 1:
            raise ValueError("links must be at least 1, or pages could not be reached")
        if self.robots == ():
            raise ValueError("robots must have one answer at least; for the usual text it is None")
        if not (IPv4Address(self.base).is_loopback and IPv4Address(self.addresses[-1]).is_loopback):
            raise ValueError(f"hosts must be addresses in 127.0.0.0/8, not {self.base} and {self.hosts - 1} more")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of each host, beginning with host 0."""
        first = IPv4Address(self.base)
        return tuple(str(first + number) for number in range(self.hosts))

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"

    def urls(self, port: int) -> tuple[str, ...]:
        """The root of each host, with a slash at the end."""
        return tuple(f"{self.scheme}://{address}:{port}/" for address in self.addresses)


class Layout(msgspec.Struct, frozen=True):
    """A site with its addresses: what the parts of the site need to write links.

    ``origins`` are the root URLs of the hosts, without the slash at the end.
    """

    site: Site
    origins: tuple[str, ...]

    @classmethod
    def at(cls, site: Site, port: int) -> Layout:
        return cls(site, tuple(url.rstrip("/") for url in site.urls(port)))

    def page_url(self, number: int) -> str:
        """The URL of page ``number``, which is on host ``number % hosts``."""
        return f"{self.origins[number % self.site.hosts]}/p/{number}"
