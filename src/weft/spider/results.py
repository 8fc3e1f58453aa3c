"""Whatever a handler gives back, as one stream.

Handlers may be generators, async generators, coroutines or plain functions; what they yield or
return may be a request, an item, None, or a list of these.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from types import AsyncGeneratorType, GeneratorType
from typing import Any


async def batches(given: Any) -> AsyncIterator[list[Any]]:
    """All that a call of a handler gives, without None, in lists as they come."""
    if isinstance(given, AsyncGeneratorType):
        async for value in given:
            yield value if type(value) is list else _flat(value)
        return
    if inspect.isawaitable(given):
        given = await given
    if isinstance(given, GeneratorType):
        for value in given:
            yield value if type(value) is list else _flat(value)
    else:
        yield _flat(given)


def flatten(values: list[Any]) -> Iterator[Any]:
    """Lists within lists, opened up."""
    for value in values:
        if isinstance(value, list | tuple | set | frozenset | GeneratorType):
            yield from flatten(list(value))
        elif value is not None:
            yield value


def _flat(value: Any) -> list[Any]:
    return [] if value is None else list(flatten([value]))
