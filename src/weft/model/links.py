"""Requests to the links of a page, made one by one when they are asked for.

A page links by the dozen to pages that are known already. So the engine holds the URLs against what it knows, and
makes requests only of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from weft.model.request import Request

_IDENTITY = frozenset({"method", "body", "salt"})


class Links(Sequence[Request]):
    """Requests to ``urls``, which are canonical, alike in all other ``fields``; a sequence like any other."""

    __slots__ = ("fields", "urls")

    def __init__(self, urls: list[str], fields: dict[str, Any]) -> None:
        self.urls = urls
        self.fields = fields

    @property
    def is_plain(self) -> bool:
        """Whether the URL is all that a request's identity depends on."""
        return _IDENTITY.isdisjoint(self.fields)

    def to(self, url: str) -> Request:
        return Request(url=url, **self.fields)

    def __len__(self) -> int:
        return len(self.urls)

    @overload
    def __getitem__(self, index: int) -> Request: ...
    @overload
    def __getitem__(self, index: slice) -> Links: ...
    def __getitem__(self, index: int | slice) -> Request | Links:
        urls = self.urls[index]
        return self.to(urls) if isinstance(urls, str) else Links(urls, self.fields)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Links({self.urls!r}, {self.fields!r})"
