"""Names that lead into private networks.

A public page may link to a name that resolves to 127.0.0.1 or to a machine of the user's own
network. The scope sees only the name; here it is resolved, once per host and a few minutes.
"""

from __future__ import annotations

from weft.addresses import addresses_of
from weft.clock import Clock
from weft.model.url import without_port
from weft.policy.scope import is_private_address

_KEPT_SECONDS = 300.0
_MOST_KEPT = 20_000


class PrivateNames:
    """Refuses hosts whose name resolves to a private address, unless the crawl started there."""

    def __init__(self, start_hosts: frozenset[str], clock: Clock) -> None:
        self._start_hosts = start_hosts
        self._clock = clock
        self._kept: dict[str, tuple[str | None, float]] = {}

    async def refuse(self, host: str) -> str | None:
        """Why this host, as in a URL, is not for the crawl; None if it is, or if it does not resolve at all."""
        kept = self._kept.get(host)
        if kept is not None and kept[1] > self._clock.monotonic():
            return kept[0]
        verdict = None if host in self._start_hosts else await self._judge(without_port(host))
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[host] = (verdict, self._clock.monotonic() + _KEPT_SECONDS)
        return verdict

    @staticmethod
    async def _judge(name: str) -> str | None:
        # Addresses were judged by the scope. By the URL standard, a host whose last part is a number is one.
        if name[-1] == "]" or name.rpartition(".")[2].isdigit():
            return None
        try:
            found = await addresses_of(name)
        except (OSError, UnicodeError):
            return None
        for address in found:
            if is_private_address(address):
                return f"{name} leads to the private address {address}"
        return None
