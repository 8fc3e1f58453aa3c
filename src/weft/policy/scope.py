"""Which links belong to the crawl.

Asked for every new link, so what depends only on the origin (scheme, domain, private or not) is
decided once and kept; the rest is two comparisons.

Private hosts: a page on the internet may link to ``http://192.168.0.1/reboot`` or to a cloud's
metadata service, and a crawler that follows does the stranger's errand inside the user's network.
Such hosts are visited only if the user started there or said so. A page on such a host is proof of
that, so it may link to its own host; this needs no list of start hosts, which may come in for as long
as the crawl runs, and by any process. A name is judged here by its spelling; what it resolves to must
be checked with :func:`is_private_address` where it is resolved.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

from weft.model.url import canonical, host_of, hostname_of

MAX_ORIGINS: Final = 50_000
"""Verdicts kept; past that all are forgotten, which costs a few µs per origin once."""

PRIVATE: Final = "a private address"
"""The one verdict that depends on where the link stands."""

PRIVATE_SUFFIXES: Final = frozenset(
    {"localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp", "home.arpa"}
)

# Ways of writing an IPv4 address inside an IPv6 one. NAT64 is in daily use and says where it leads;
# the tunnels are extinct, and whoever links to one is up to something.
_NAT64: Final = IPv6Network("64:ff9b::/96")
_TUNNELS: Final = (IPv6Network("2002::/16"), IPv6Network("2001::/32"))


class Scope:
    """The limits of one crawl. ``start_hosts`` are ``host[:port]`` as :func:`weft.model.url.host_of` gives them.

    ``domains`` hold themselves and all their subdomains; none means any. A limit of 0 is none.
    """

    __slots__ = ("_domains", "_max_depth", "_max_length", "_private", "_start_hosts", "_verdicts")

    def __init__(
        self,
        *,
        domains: Iterable[str] = (),
        start_hosts: frozenset[str] = frozenset(),
        private: bool = False,
        max_depth: int = 0,
        max_url_length: int = 0,
    ) -> None:
        self._domains = frozenset(_domain(domain) for domain in domains)
        self._start_hosts = start_hosts
        self._private = private
        self._max_depth = max_depth or float("inf")
        self._max_length = max_url_length or float("inf")
        self._verdicts: dict[str, str | None] = {}

    def too_deep(self, depth: int) -> bool:
        """Whether so many links from the start are too many. Unlike the rest, this is not a matter of the URL alone."""
        return depth > self._max_depth

    def refuse(self, url: str, depth: int, source: str = "") -> str | None:
        """Why the link is left alone, in words; None if it is in scope. ``source``: the host whose page has it."""
        if depth > self._max_depth:
            return f"deeper than {self._max_depth} links"
        if len(url) > self._max_length:
            return f"longer than {self._max_length} characters"
        # The first slash that can end an origin: "https://" and "http://a" are eight characters.
        end = url.find("/", 8)
        origin = url if end < 0 else url[:end]
        try:
            verdict = self._verdicts[origin]
        except KeyError:
            verdict = self._keep(origin)
        return None if verdict is PRIVATE and source and host_of(canonical(origin)) == source else verdict

    def _keep(self, origin: str) -> str | None:
        if len(self._verdicts) >= MAX_ORIGINS:
            self._verdicts.clear()
        verdict = self._verdicts[origin] = self._judge(origin)
        return verdict

    def _judge(self, origin: str) -> str | None:
        # Parsed once more, so that a URL that was not canonical can't slip through in a disguise.
        try:
            url = canonical(origin)
        except ValueError:
            return "not an http or https URL"
        host, hostname = host_of(url), hostname_of(url)
        if self._domains and not self._in_domains(host, hostname):
            return "outside the allowed domains"
        if not self._private and host not in self._start_hosts and is_private_host(hostname):
            return PRIVATE
        return None

    def _in_domains(self, host: str, hostname: str) -> bool:
        if host in self._domains:
            return True
        name = hostname.rstrip(".")
        while name not in self._domains:
            _, dot, name = name.partition(".")
            if not dot:
                return False
        return True


def is_private_host(hostname: str) -> bool:
    """Whether a host, as it stands in a canonical URL, is an address or a name of a local network.

    Names without a dot are: on the internet there are none, at home there are routers.
    """
    name = hostname.rstrip(".").lower()
    if name.startswith("[") or name.replace(".", "").isdigit():
        return is_private_address(name)
    if "." not in name:
        return True
    head, _, last = name.rpartition(".")
    return last in PRIVATE_SUFFIXES or f"{head.rpartition('.')[2]}.{last}" in PRIVATE_SUFFIXES


def is_private_address(address: str) -> bool:
    """Whether an IP address is anything but an ordinary one on the internet.

    Private, loopback, link-local, shared by carriers (CGNAT), multicast, reserved, unspecified;
    also inside an IPv6 form of it. What is not an address at all counts as private.
    """
    try:
        ip = ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return True
    if isinstance(ip, IPv6Address):
        embedded = ip.ipv4_mapped
        if embedded is None and ip in _NAT64:
            embedded = IPv4Address(int(ip) & 0xFFFF_FFFF)
        if embedded is None:
            return _special(ip) or ip.is_site_local or any(ip in tunnel for tunnel in _TUNNELS)
        ip = embedded
    return _special(ip)


def _special(ip: IPv4Address | IPv6Address) -> bool:
    return not ip.is_global or ip.is_multicast or ip.is_reserved


def _domain(text: str) -> str:
    """``example.com`` of the ways people write it: ``.Example.com``, ``*.example.com``, ``http://example.com/``."""
    text = text.strip()
    bare = text.partition("://")[2] if "://" in text else text
    try:
        return host_of(canonical("http://" + bare.removeprefix("*").lstrip("."))).rstrip(".")
    except ValueError:
        return bare.lower()
