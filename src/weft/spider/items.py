"""Items: whatever record type the user likes, as one JSON document.

msgspec writes them all but for two kinds. pydantic's go through its hook. attrs' it takes for its own affair: it goes
by their slots, in alphabetical order, and leaves out names that begin with an underscore. So they become dicts first.
They have to be looked for wherever they may hide, which costs nothing where attrs was never imported, and next to
nothing for a dict of texts and numbers.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

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
    """:raises TypeError: something in it has no form in JSON; the message names it."""
    try:
        return _encode(_opened(item) if "attr" in sys.modules else item)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TypeError(f"the item can't be written as JSON: {error}. Item: {_shortened(item)}") from error


def _opened(value: Any) -> Any:
    """The same, with dicts in place of attrs objects."""
    kind = type(value)
    if kind in _SIMPLE:
        return value
    if isinstance(value, dict):
        if _SIMPLE.issuperset(map(type, value.values())):
            return value
        return {key: _opened(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return value if _SIMPLE.issuperset(map(type, value)) else [_opened(each) for each in value]
    if hasattr(kind, "__attrs_attrs__"):
        names = (field.name for field in kind.__attrs_attrs__)
        return {name: _opened(getattr(value, name)) for name in names if hasattr(value, name)}
    if hasattr(kind, "__struct_fields__"):
        return _mended(value, kind.__struct_fields__, msgspec.structs.force_setattr)
    if hasattr(kind, "__dataclass_fields__"):
        return _mended(value, kind.__dataclass_fields__, object.__setattr__)
    return value


def _mended(value: Any, names: Iterable[str], put: Callable[[Any, str, Any], None]) -> Any:
    """A record with its fields opened, in a copy if there was something to open.

    It stays what it is, as a struct may have names, a tag or a form in JSON of its own.
    """
    given = {name: getattr(value, name) for name in names if hasattr(value, name)}
    opened = {name: _opened(each) for name, each in given.items()}
    changed = {name: each for name, each in opened.items() if each is not given[name]}
    if changed:
        value = copy.copy(value)
    for name, each in changed.items():
        put(value, name, each)
    return value


def _hook(value: Any) -> Any:
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{type(value).__qualname__} ({_shortened(value)}) has no form in JSON")


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"


_encode = msgspec.json.Encoder(enc_hook=_hook, decimal_format="string").encode
