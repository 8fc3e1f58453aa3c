"""Whatever a handler gives back, as one stream.

Handlers may be generators, async generators, coroutines or plain functions; what they yield or
return may be a request, an item, None, or a list of these.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterable, Iterator
from types import AsyncGeneratorType, GeneratorType
from typing import Any


async def batches(given: Any) -> AsyncIterator[list[Any]]:
    """All that a call of a handler gives, in lists as they come; these may hold lists, and None."""
    if isinstance(given, AsyncGeneratorType):
        async for value in given:
            yield value if type(value) is list else [value]
    elif isinstance(given, GeneratorType):
        for value in given:
            yield value if type(value) is list else [value]
    elif inspect.isawaitable(given):
        yield [await given]
    else:
        yield [given]


def flatten(values: Iterable[Any]) -> Iterator[Any]:
    """Lists within lists, opened up, without None."""
    for value in values:
        if isinstance(value, list | tuple | set | frozenset | GeneratorType):
            yield from flatten(value)
        elif value is not None:
            yield value
