"""Names that lead into private networks.

A public page may link to a name that resolves to 127.0.0.1 or to a machine of the user's own
network. The scope sees only the name; here it is resolved, once per host and a few minutes. The connection resolves it
again, so a name whose answers change in between gets through; docs/explanation/politeness.md says so.

Such a host is for the crawl if it started there. Start URLs come in for as long as the crawl runs, and through any
of its processes. So whoever fetches one from such a host first notes the host for all workers: its links can be
found only afterwards. And whoever is about to refuse a host looks for the note afresh.
"""

from __future__ import annotations

from weft.addresses import addresses_of
from weft.clock import Clock
from weft.frontier.base import Memo
from weft.model.url import without_port
from weft.policy.scope import is_private_address

_KEPT_SECONDS = 300.0
_MOST_KEPT = 20_000
# Longer than any crawl: what a memo keeps has to have an end.
_NOTED_SECONDS = 10 * 365 * 86_400.0


class PrivateNames:
    """Refuses hosts whose name resolves to a private address, unless the crawl started there."""

    def __init__(self, start_hosts: frozenset[str], memo: Memo, clock: Clock) -> None:
        self._start_hosts = start_hosts
        self._memo = memo
        self._clock = clock
        self._kept: dict[str, tuple[str | None, float]] = {}

    async def refuse(self, host: str, *, start: bool = False) -> str | None:
        """Why this host, as in a URL, is not for the crawl; None if it is, or if it does not resolve at all.

        ``start``: it is the host of a start URL, and so is for the crawl from now on.

        :raises StoreError: the store can't be read or written.
        """
        kept = self._kept.get(host)
        if kept is not None and kept[1] > self._clock.monotonic():
            verdict = kept[0]
        else:
            verdict = self._keep(host, await self._judge(host))
        if verdict is None:
            return None
        note = f"started at {host}"
        if start:
            await self._memo.remember(note, b"", _NOTED_SECONDS)
        elif await self._memo.recall(note) is None:
            return verdict
        return self._keep(host, None)

    def _keep(self, host: str, verdict: str | None) -> str | None:
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[host] = (verdict, self._clock.monotonic() + _KEPT_SECONDS)
        return verdict

    async def _judge(self, host: str) -> str | None:
        name = without_port(host)
        # Addresses were judged by the scope. By the URL standard, a host whose last part is a number is one.
        if host in self._start_hosts or name[-1] == "]" or name.rpartition(".")[2].isdigit():
            return None
        try:
            found = await addresses_of(name)
        except (OSError, UnicodeError):
            return None
        for address in found:
            if is_private_address(address):
                return f"{name} leads to the private address {address}"
        return None
