"""The views: each reads what one page shows, and returns the values that its template names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from uttu.api.pages.shapes import PageData, User
from uttu.api.pages.translation import Translator
from uttu.errors import UttuError

Value = TypeVar("Value")


class Visit(msgspec.Struct, frozen=True):
    """A look at a page: who looks, in which language, and the parameters of the path and of the query."""

    data: PageData
    user: User
    t: Translator
    params: Mapping[str, str]
    query: Mapping[str, str]

    def number(self, name: str, default: int, most: int = 2**62) -> int:
        """A number of the query between 0 and ``most``; the default if it is missing or not a number."""
        try:
            return min(most, max(0, int(self.query.get(name, default))))
        except ValueError:
            return default

    def text(self, name: str, longest: int = 2000) -> str:
        """A text of the query without spaces around it."""
        return self.query.get(name, "").strip()[:longest]


Context = dict[str, Any]
View = Callable[[Visit], Awaitable[Context]]


async def attempt(reading: Awaitable[Value]) -> tuple[Value | None, str]:
    """The value, or the error as text. For a part of a page, so that the others are shown if it fails."""
    try:
        return await reading, ""
    except UttuError as error:
        return None, str(error)
