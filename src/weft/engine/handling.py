"""Calling the user's functions and sorting what they give into requests and items."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

from weft.model import Links, Request
from weft.spider.faults import frames_of, line_of, message_of
from weft.spider.items import encode, is_item
from weft.spider.results import batches, flatten


async def collect(given: Any) -> tuple[list[Request | Links], list[bytes]]:
    """The requests, and the items as JSON, of one call of a handler.

    :raises TypeError: it gave something else, or an item that has no form in JSON.
    """
    requests: list[Request | Links] = []
    items: list[bytes] = []
    if type(given) is GeneratorType:  # as most handlers are; without a detour through the asynchronous
        for value in given:
            _sort(value, requests, items)
    else:
        async for batch in batches(given):
            _sort(batch, requests, items)
    return requests, items


def _sort(value: Any, requests: list[Request | Links], items: list[bytes]) -> None:
    kind = type(value)
    if kind is dict:
        items.append(encode(value))
    elif kind is Links or kind is Request:
        requests.append(value)
    else:
        _sort_rare(value, requests, items)


def _sort_rare(value: Any, requests: list[Request | Links], items: list[bytes]) -> None:
    for each in flatten([value]):
        if isinstance(each, Request | Links):
            requests.append(each)
        elif is_item(each):
            items.append(encode(each))
        else:
            raise TypeError(
                f"a handler yielded {each!r:.80}, a {type(each).__name__}; it may yield requests and items "
                "(dict, dataclass, msgspec, attrs or pydantic object). To follow a URL, yield page.follow(url=…)"
            )


def described(error: BaseException) -> tuple[str, str]:
    """One line, and the traceback, without our own frames around the user's."""
    return line_of(error), f"Traceback (most recent call last):\n{frames_of(error)}{message_of(error)}"
