"""Results of handlers: flatten them into one stream, and encode records of any type as JSON items.

Handlers may be generators, async generators, coroutines or plain functions. They may yield or return a request, an
item, None, or a list of these (:func:`flatten`, :func:`iterate_batches`).

Items are encoded by msgspec, with three exceptions. Subclasses of str, int, float and bytes (lxml's strings are such)
are stored as their base, and pydantic objects as dicts: msgspec hands both to an ``enc_hook``. msgspec encodes attrs
objects by their slots, in alphabetical order and without names that begin with an underscore, so they are converted to
dicts first. They may be nested anywhere; the search costs nothing if attrs was never imported, and almost nothing for
a dict of texts and numbers.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Final

import msgspec

from uttu.model.request import to_base
from uttu.spider.selection import Selection

_SCALARS: Final = frozenset({int, float, bool, type(None)})
_CONTAINERS: Final = frozenset({list, tuple, set, frozenset})
_SIMPLE: Final = frozenset({str, int, float, bool, type(None), bytes})


def is_item(value: Any) -> bool:
    """Whether a handler's result is a record: dict, dataclass, msgspec struct, attrs or pydantic object."""
    return (
        isinstance(value, dict | msgspec.Struct)
        or (dataclasses.is_dataclass(value) and not isinstance(value, type))
        or hasattr(value, "__attrs_attrs__")
        or callable(getattr(value, "model_dump", None))
    )


def encode(item: Any) -> bytes:
    """The item as JSON.

    :raises TypeError: a value in it cannot be written as JSON. The message names it.
    """
    try:
        return _encode(_unwrap_attrs(item) if "attr" in sys.modules else item)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TypeError(f"the item can't be written as JSON: {error}. Item: {_shorten(item)}") from error


def spend(value: Any, left: int) -> int:
    """``left`` minus the characters of all texts in a value, keys excepted, and the lengths of its containers.

    Stops when the result is negative. A small value may refer to the same long text a thousand times, so this is asked
    before it is encoded. Objects that are neither of JSON's types nor records count nothing.
    """
    try:
        return _spend(value, left)
    except RecursionError:  # the encoder raises it, too, with a better message
        return left


def _spend(value: Any, left: int) -> int:
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind is str or kind is bytes:
        return left - len(value)
    elif kind not in _CONTAINERS:
        names = getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ())
        value = [getattr(value, name, None) for name in names]
    left -= len(value)
    for each in value:
        inner = type(each)
        if inner is str:
            left -= len(each)
        elif inner not in _SCALARS:
            left = _spend(each, left)
            if left < 0:
                break
    return left


def _unwrap_attrs(value: Any) -> Any:
    """``value`` with dicts in place of attrs objects."""
    kind = type(value)
    if kind in _SIMPLE:
        return value
    if isinstance(value, dict):
        if _SIMPLE.issuperset(map(type, value.values())):
            return value
        return {key: _unwrap_attrs(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return value if _SIMPLE.issuperset(map(type, value)) else [_unwrap_attrs(each) for each in value]
    if hasattr(kind, "__attrs_attrs__"):
        names = (field.name for field in kind.__attrs_attrs__)
        return {name: _unwrap_attrs(getattr(value, name)) for name in names if hasattr(value, name)}
    if hasattr(kind, "__struct_fields__"):
        return _unwrap_fields(value, kind.__struct_fields__, msgspec.structs.force_setattr)
    if hasattr(kind, "__dataclass_fields__"):
        return _unwrap_fields(value, kind.__dataclass_fields__, object.__setattr__)
    return value


def _unwrap_fields(value: Any, names: Iterable[str], set_field: Callable[[Any, str, Any], None]) -> Any:
    """A record whose fields are converted by ``_unwrap_attrs``; a copy if one of them changed.

    It keeps its type, because a struct may define other names, a tag or its own JSON form.
    """
    original = {name: getattr(value, name) for name in names if hasattr(value, name)}
    unwrapped = {name: _unwrap_attrs(each) for name, each in original.items()}
    changed = {name: each for name, each in unwrapped.items() if each is not original[name]}
    if changed:
        value = copy.copy(value)
    for name, each in changed.items():
        set_field(value, name, each)
    return value


def _encode_other(value: Any) -> Any:
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    if isinstance(value, str | int | float | bytes | bytearray | memoryview):
        return to_base(value)
    if isinstance(value, Selection):
        raise TypeError(f"{_shorten(value)} is a selection; write .get() or .getall() after it")
    raise TypeError(f"JSON has no type for {type(value).__qualname__} ({_shorten(value)})")


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"


_encode = msgspec.json.Encoder(enc_hook=_encode_other, decimal_format="string").encode


async def iterate_batches(result: Any) -> AsyncIterator[list[Any]]:
    """The results of a handler call, in lists as they arrive. The lists may contain lists and None."""
    if isinstance(result, AsyncGeneratorType):
        async for value in result:
            yield value if type(value) is list else [value]
    elif isinstance(result, GeneratorType):
        for value in result:
            yield value if type(value) is list else [value]
    elif inspect.isawaitable(result):
        yield [await result]
    else:
        yield [result]


def flatten(values: Iterable[Any]) -> Iterator[Any]:
    """The values without None, with the contents of nested lists in place of the lists."""
    for value in values:
        if isinstance(value, list | tuple | set | frozenset | GeneratorType):
            yield from flatten(value)
        elif value is not None:
            yield value
