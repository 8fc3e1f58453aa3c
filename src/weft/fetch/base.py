"""The Fetcher's contract."""

from __future__ import annotations

from typing import Protocol

from weft.model import Request, Response


class Fetcher(Protocol):
    """Turns a request into a response. Used by many tasks at once."""

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        """One exchange with the host, and only one: redirects are returned, not followed.

        Any status is a response. The body is whole, decompressed and within the size limit. With ``first``, that limit
        does not count: of a body that has more bytes only the first so many are read, and the response is ``cut``.

        :raises FetchError: no complete response could be had; its class says why.
        """

    async def close(self) -> None:
        """Close all connections."""
