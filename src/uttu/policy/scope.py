"""Decide which links belong to the crawl.

Every new link is checked. The part of the decision that depends only on the origin (scheme, domain, private or not) is
cached; the rest is two comparisons.

Private hosts: a page on the internet may link to ``http://192.168.0.1/reboot`` or to a cloud's metadata service. A
crawler that follows such links runs a stranger's requests inside the user's network. So private hosts are fetched only
if the crawl started there or the setting ``private`` allows them. A page on a private host was fetched, so it may link
to its own host. This needs no list of start hosts, which any process may extend while the crawl runs.

Names are judged by their spelling here. The addresses that a name resolves to must be checked with
:func:`is_private_address` where it is resolved.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

from uttu.model.url import canonical, host_of, hostname_of

MAX_ORIGINS: Final = 50_000
"""The most cached verdicts. When the cache is full it is cleared, which costs a few µs per origin once."""


class OutOfScope(StrEnum):
    """The reasons to refuse every URL of an origin."""

    NOT_WEB = "not an http or https URL"
    DOMAINS = "outside the allowed domains"
    PRIVATE = "a private address"
    """The only one that depends on the page which has the link."""


# A global name is read faster than a member of an enum, and it is read for each link.
PRIVATE: Final = OutOfScope.PRIVATE

PRIVATE_SUFFIXES: Final = frozenset(
    {"localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp", "home.arpa"}
)

# IPv6 addresses that contain an IPv4 address. NAT64 is in use, and its embedded address is checked. The tunnels (6to4,
# Teredo) are obsolete, so links to them are suspicious and count as private.
_NAT64: Final = IPv6Network("64:ff9b::/96")
_TUNNELS: Final = (IPv6Network("2002::/16"), IPv6Network("2001::/32"))


class Scope:
    """The limits of one crawl. A limit of 0 means no limit.

    :param domains: Allowed domains, with their subdomains; empty for any.
    :param start_hosts: Hosts where the crawl started, as ``host[:port]`` (:func:`uttu.model.url.host_of`).
    :param private: Allow private hosts.
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
        self._verdicts: dict[str, OutOfScope | None] = {}

    def is_too_deep(self, depth: int) -> bool:
        """Whether a request this many links away from the start is too deep."""
        return depth > self._max_depth

    def refuse(self, url: str, depth: int, source: str = "") -> str | None:
        """The reason why a link on a page of the host ``source`` is out of scope; None if it is in scope.

        If it holds for the whole origin, it is a member of :class:`OutOfScope`.
        """
        if depth > self._max_depth:
            return f"deeper than {self._max_depth} links"
        if len(url) > self._max_length:
            return f"longer than {self._max_length} characters"
        # Search from index 8: "https://" and "http://a" have eight characters, so the next slash ends the origin.
        end = url.find("/", 8)
        origin = url if end < 0 else url[:end]
        try:
            verdict = self._verdicts[origin]
        except KeyError:
            verdict = self._keep(origin)
        return None if verdict is PRIVATE and source and host_of(canonical(origin)) == source else verdict

    def _keep(self, origin: str) -> OutOfScope | None:
        if len(self._verdicts) >= MAX_ORIGINS:
            self._verdicts.clear()
        verdict = self._verdicts[origin] = self._judge(origin)
        return verdict

    def _judge(self, origin: str) -> OutOfScope | None:
        # Parsed again, so that a URL that is not canonical can't bypass the checks.
        try:
            url = canonical(origin)
        except ValueError:
            return OutOfScope.NOT_WEB
        host, hostname = host_of(url), hostname_of(url)
        if self._domains and not self._in_domains(host, hostname):
            return OutOfScope.DOMAINS
        if not self._private and host not in self._start_hosts and is_private_host(hostname):
            return OutOfScope.PRIVATE
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
    """Whether the host of a canonical URL is an address or a name in a local network.

    Names without a dot count as local: the internet has none.
    """
    name = hostname.rstrip(".").lower()
    if name.startswith("[") or name.replace(".", "").isdigit():
        return is_private_address(name)
    if "." not in name:
        return True
    head, _, last = name.rpartition(".")
    return last in PRIVATE_SUFFIXES or f"{head.rpartition('.')[2]}.{last}" in PRIVATE_SUFFIXES


def is_private_address(address: str) -> bool:
    """Whether an IP address is not a public address of the internet.

    That is: private, loopback, link-local, shared by carriers (CGNAT), multicast, reserved or unspecified, also if
    embedded in an IPv6 address. Text that is not an address counts as private.
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
    """``example.com`` from any common spelling: ``.Example.com``, ``*.example.com``, ``http://example.com/``."""
    text = text.strip()
    bare = text.partition("://")[2] if "://" in text else text
    try:
        return host_of(canonical("http://" + bare.removeprefix("*").lstrip("."))).rstrip(".")
    except ValueError:
        return bare.lower()
