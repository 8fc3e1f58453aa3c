"""The contract of a fetcher: one request in, one response out.

The engine calls ``fetch`` from many tasks at once and decides about redirects, retries and delays itself. A fetcher
that opens connections is also :class:`ResolverAware`: it connects only to addresses that the engine's resolver has
checked, so that a public name cannot lead into a private network.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from uttu.model import Request, Response


class Fetcher(Protocol):
    """Turns a request into a response. Many tasks use one fetcher at the same time."""

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        """Do exactly one exchange with the host. Redirects are returned, not followed.

        Every status is a response, also 404 and 500. The body is complete, decompressed and at most ``max_body`` bytes.

        :param first: replaces the size limit: read only the first ``first`` bytes of a longer body and set ``cut`` on
            the response.
        :raises FetchError: the fetch gave no complete response. The subclass says why.
        """

    async def close(self) -> None:
        """Close all connections."""


Resolve = Callable[[str, str], Awaitable[list[str]]]
"""Called with a host (with its port, as in a URL) and its name. Returns the addresses to try, in this order."""


@runtime_checkable
class ResolverAware(Protocol):
    """A fetcher that connects only to the addresses that its resolver returns."""

    def use_resolver(self, resolve: Resolve) -> None:
        """Use ``resolve`` for all hosts from now on. ``fetch`` raises what it raises.

        The names of proxies do not go through ``resolve``.
        """
