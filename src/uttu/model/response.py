"""The response to a request, and its headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar, overload

import msgspec

from uttu.model.request import Request

T = TypeVar("T")


class Headers(Mapping[str, str]):
    """Response headers: case-insensitive, in order. Of repeated headers, the first counts; ``get_all`` returns all.

    :param lookup: The values by lower-case name, if the caller has them already.
    """

    __slots__ = ("_lookup", "_pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]] = (), lookup: dict[str, str] | None = None) -> None:
        self._pairs = tuple(pairs)
        self._lookup = lookup

    @property
    def by_name(self) -> dict[str, str]:
        """The first value of each header, by its lower-case name. Several lookups in it are faster than ``get``."""
        # Built on first use: the headers of many responses are never read.
        index = self._lookup
        if index is None:
            pairs = self.pairs()
            index = self._lookup = {name.lower(): value for name, value in pairs}
            if len(index) < len(pairs):  # there are repeated headers, and the first one counts
                for name, value in reversed(pairs):
                    index[name.lower()] = value
        return index

    def __getitem__(self, name: str) -> str:
        return self.by_name[name.lower()]

    # Overridden for speed: Mapping's versions catch a KeyError for missing headers, several times per page.
    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self.by_name

    @overload
    def get(self, name: str, /) -> str | None: ...
    @overload
    def get(self, name: str, /, default: T) -> str | T: ...
    def get(self, name: str, /, default: T | None = None) -> str | T | None:
        index = self._lookup
        return (self.by_name if index is None else index).get(name.lower(), default)

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def get_all(self, name: str) -> list[str]:
        name = name.lower()
        return [value for key, value in self.pairs() if key.lower() == name]

    def without(self, *names: str) -> Headers:
        """The headers without these names, which must be in lower case."""
        return Headers(pair for pair in self.pairs() if pair[0].lower() not in names)

    def pairs(self) -> tuple[tuple[str, str], ...]:
        return self._pairs

    def __repr__(self) -> str:
        return f"Headers({list(self.pairs())!r})"


class Response(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """A complete response: the body is decompressed, its charset not yet decided.

    ``received`` is the ``time.monotonic()`` at which its first byte arrived; the server saw the request before that.
    ``elapsed`` is the duration of the whole fetch in seconds. ``cut``: the body is only the beginning, because the
    caller asked for no more; pages are never cut.
    """

    request: Request
    url: str
    status: int
    headers: Headers
    body: bytes
    received: float = 0.0
    elapsed: float = 0.0
    version: str = ""
    cached: bool = False
    cut: bool = False

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300
