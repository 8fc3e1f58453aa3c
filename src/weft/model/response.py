"""What came back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar, overload

import msgspec

from weft.model.request import Request

T = TypeVar("T")


class Headers(Mapping[str, str]):
    """Response headers: case-insensitive, in order, repeated ones kept (``get_all``)."""

    __slots__ = ("_lookup", "_pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]] = (), lookup: dict[str, str] | None = None) -> None:
        """``lookup``: the same by their names in lower case, where it is known already."""
        self._pairs = tuple(pairs)
        self._lookup = lookup

    @property
    def _index(self) -> dict[str, str]:
        # Built when first asked for: many responses are never asked for a header.
        index = self._lookup
        if index is None:
            pairs = self.pairs()
            index = self._lookup = {name.lower(): value for name, value in pairs}
            if len(index) < len(pairs):  # of those told several times, the first counts
                for name, value in reversed(pairs):
                    index[name.lower()] = value
        return index

    def __getitem__(self, name: str) -> str:
        return self._index[name.lower()]

    # Mapping's own catch an exception for what is missing, and are asked several times a page.
    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._index

    @overload
    def get(self, name: str, /) -> str | None: ...
    @overload
    def get(self, name: str, /, default: T) -> str | T: ...
    def get(self, name: str, /, default: T | None = None) -> str | T | None:
        index = self._lookup
        return (self._index if index is None else index).get(name.lower(), default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def get_all(self, name: str) -> list[str]:
        name = name.lower()
        return [value for key, value in self.pairs() if key.lower() == name]

    def without(self, *names: str) -> Headers:
        """The others; names in lower case."""
        return Headers(pair for pair in self.pairs() if pair[0].lower() not in names)

    def pairs(self) -> tuple[tuple[str, str], ...]:
        return self._pairs

    def __repr__(self) -> str:
        return f"Headers({list(self.pairs())!r})"


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, whole: the body is decompressed, the charset not yet decided.

    ``received`` is when its head arrived, by ``time.monotonic()``: no server can have seen the
    request later than that. ``elapsed`` is the whole fetch in seconds. ``cut``: the body goes on, but no more than
    its beginning was asked for; pages are never cut.
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
