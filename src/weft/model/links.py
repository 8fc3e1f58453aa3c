"""Requests to the links of a page, made one by one when they are asked for.

A page links by the dozen to pages that are known already. So the engine holds the links, as they stand on the page,
against what it knows; only the others are joined to the page's URL and become requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from weft.model.request import Request
from weft.model.url import Joiner

_IDENTITY = frozenset({"method", "body", "salt"})
_BARE = frozenset({"handler", "depth"})


class Links(Sequence[Request]):
    """Requests to where ``texts`` lead, each once, alike in all other ``fields``; a sequence like any other."""

    __slots__ = ("_urls", "fields", "join", "texts")

    def __init__(self, texts: list[str], join: Joiner, fields: dict[str, Any]) -> None:
        self.texts = texts
        self.join = join
        self.fields = fields
        self._urls: list[str] | None = None

    @property
    def urls(self) -> list[str]:
        if self._urls is None:
            self._urls = self.join.all(self.texts)
        return self._urls

    @property
    def is_plain(self) -> bool:
        """Whether the URL is all that a request's identity depends on."""
        return _IDENTITY.isdisjoint(self.fields)

    @property
    def is_bare(self) -> bool:
        """Whether they have nothing but a handler and a depth, as a page gives to each."""
        return self.fields.keys() <= _BARE

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
        return self.to(urls) if isinstance(urls, str) else Links(urls, self.join, self.fields)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Links({self.urls!r}, {self.fields!r})"
