"""Look up host names, and refuse names that lead into private networks.

Look-ups. ``getaddrinfo`` blocks, so every name gets its own thread, at most ``_MAX_LOOKUPS`` at once. The event loop's
pool has few threads, and names whose servers do not answer would hold up the others. Such a thread cannot be cancelled:
a second look-up of the same name waits for the first, and the threads are daemons, so a process does not wait for them
when it exits.

Private addresses. A public page may link to a name that resolves to 127.0.0.1 or to a machine of the user's network.
The scope only sees the name, so :class:`GuardedResolver` resolves and judges it, and caches the result for
``_CACHE_SECONDS``. The connection gets exactly the addresses that were judged (:meth:`GuardedResolver.resolve`): each
name is looked up once, and a name server that changes its answer in between (DNS rebinding) gains nothing.

A private host is allowed if the crawl started there. Start URLs may arrive at any time, through any process of the
crawl. So a worker that fetches a start URL on a private host first records the host in the crawl's memo, before links
to it can be found. A worker that is about to refuse a host reads the memo again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from concurrent.futures import Future
from typing import Final
from urllib.parse import urlsplit

from uttu.clients.addresses import mask_password
from uttu.clock import Clock
from uttu.errors import PrivateHost
from uttu.frontier.base import Memo
from uttu.model import Request
from uttu.model.url import without_port
from uttu.policy.scope import is_private_address, is_private_host

_MAX_LOOKUPS: Final = 500  # at once, in the whole process
_PROXY_LOOKUP_SECONDS: Final = 3.0
_CACHE_SECONDS: Final = 300.0
_MAX_CACHED: Final = 20_000  # hosts; then the cache starts empty
# A memo entry needs an expiry. Ten years is longer than any crawl.
_MEMO_SECONDS: Final = 10 * 365 * 86_400.0

_running: Final[dict[str, Future[list[str]]]] = {}
"""Look-ups in progress, by name. All event loops of the process share them."""


async def look_up_addresses(name: str) -> list[str]:
    """The addresses of ``name``, in the order in which to try them. An IP address is returned unchanged.

    :raises OSError: the name does not resolve, or ``_MAX_LOOKUPS`` look-ups are in progress
        (:class:`socket.gaierror`).
    :raises UnicodeError: the name cannot be encoded for DNS.
    """
    try:
        return [str(ipaddress.ip_address(name))]
    except ValueError:
        pass
    lookup = _running.get(name)
    if lookup is None:
        if len(_running) >= _MAX_LOOKUPS:
            raise socket.gaierror(socket.EAI_AGAIN, f"{_MAX_LOOKUPS} other look-ups are in progress")
        lookup = _running[name] = Future()
        lookup.set_running_or_notify_cancel()  # a waiter that is cancelled must not cancel the look-up
        threading.Thread(target=_look_up, args=(name, lookup), name=f"uttu name {name}", daemon=True).start()
    return await asyncio.wrap_future(lookup)


def _look_up(name: str, lookup: Future[list[str]]) -> None:
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in answers))
    except Exception as error:
        del _running[name]
        lookup.set_exception(error)
    else:
        del _running[name]
        lookup.set_result(addresses)


class _Lookup:
    """A cached look-up: the addresses or the error, and ``verdict``: why the host is refused, or None."""

    __slots__ = ("addresses", "error", "until", "verdict")

    def __init__(self, addresses: list[str], error: Exception | None, verdict: str | None, until: float) -> None:
        self.addresses = addresses
        self.error = error
        self.verdict = verdict
        self.until = until


class GuardedResolver:
    """Refuses hosts whose name resolves to a private address, unless the crawl started there."""

    def __init__(self, start_hosts: frozenset[str], memo: Memo, clock: Clock) -> None:
        self._start_hosts = start_hosts
        self._memo = memo
        self._clock = clock
        self._cache: dict[str, _Lookup] = {}

    async def refuse(self, host: str, *, start: bool = False) -> str | None:
        """Why the crawl may not fetch from ``host`` (as in a URL). None if it may, or if the name does not resolve.

        :param start: the URL is a start URL, so the host is allowed from now on, in all processes of the crawl.
        :raises StoreError: the memo cannot be read or written.
        """
        cached = self._cache.get(host)
        if cached is None or cached.until <= self._clock.monotonic():
            if not self._needs_check(host):
                return None
            cached = await self._get_lookup(host)
        if cached.verdict is None:
            return None
        memo_key = f"started at {host}"
        if start:
            await self._memo.remember(memo_key, b"", _MEMO_SECONDS)
        elif await self._memo.recall(memo_key) is None:
            return cached.verdict
        cached.verdict = None
        return None

    async def resolve(self, host: str, name: str) -> list[str]:
        """The addresses to connect to for ``host``, whose name is ``name``: exactly those that were judged.

        :raises PrivateHost: the host is refused.
        :raises OSError: the name does not resolve (:class:`socket.gaierror`).
        :raises UnicodeError: the name cannot be encoded for DNS.
        :raises StoreError: the memo cannot be read.
        """
        if not self._needs_check(host):
            return await look_up_addresses(name)
        cached = self._cache.get(host)
        if cached is not None and not cached.addresses and cached.error is None:
            del self._cache[host]  # the failed look-up was reported once already; look up again
        if refused := await self.refuse(host):
            raise PrivateHost(refused)
        cached = await self._get_lookup(host)
        error, cached.error = cached.error, None
        if error is not None:
            raise error
        return cached.addresses

    def _needs_check(self, host: str) -> bool:
        """Whether the name has to be resolved and judged. Start hosts are allowed, and the scope judges IP addresses.

        By the URL standard, a host whose last part is a number is an IPv4 address.
        """
        name = without_port(host)
        return not (host in self._start_hosts or name[-1] == "]" or name.rpartition(".")[2].isdigit())

    async def _get_lookup(self, host: str) -> _Lookup:
        cached = self._cache.get(host)
        if cached is None or cached.until <= self._clock.monotonic():
            cached = await self._look_up(without_port(host))
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[host] = cached
        return cached

    async def _look_up(self, name: str) -> _Lookup:
        addresses: list[str] = []
        failure: Exception | None = None
        try:
            addresses = await look_up_addresses(name)
        except (OSError, UnicodeError) as error:
            failure = error
        private = next(filter(is_private_address, addresses), None)
        verdict = f"{name} resolves to the private address {private}" if private is not None else None
        return _Lookup(addresses, failure, verdict, self._clock.monotonic() + _CACHE_SECONDS)


async def resolve_unguarded(host: str, name: str) -> list[str]:
    """A :data:`~uttu.fetch.base.Resolve` that also returns private addresses."""
    return await look_up_addresses(name)


async def check_proxy(request: Request, crawl_proxy: str = "") -> None:
    """Check that a pushed request does not use its proxy to reach a server inside the user's network.

    :param crawl_proxy: the proxy of the crawl, which may be in a private network.
    :raises ValueError: the proxy is in a private network, or cannot be looked up.
    """
    if not request.proxy or request.proxy == crawl_proxy:
        return
    try:
        name = urlsplit(request.proxy).hostname or ""
    except ValueError:
        name = ""
    if not name:
        raise ValueError(f"the proxy {mask_password(request.proxy)!r:.200} is not a URL")
    host = f"[{name}]" if ":" in name else name
    lookup: list[str] = []
    try:
        async with asyncio.timeout(_PROXY_LOOKUP_SECONDS):
            lookup = await look_up_addresses(name)
    except TimeoutError:
        raise ValueError(
            f"cannot resolve the proxy {mask_password(request.proxy)!r:.200} within {_PROXY_LOOKUP_SECONDS:g} s"
        ) from None
    except (OSError, UnicodeError):
        pass  # the fetch will report it
    # is_private_host also knows addresses that are written as one number (0x7f000001, 2130706433).
    if is_private_host(host) or any(map(is_private_address, lookup)):
        raise ValueError(
            f"the proxy {mask_password(request.proxy)!r:.200} is in a private network. Pushed requests may use public "
            "proxies and the proxy of the crawl"
        )
