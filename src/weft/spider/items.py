"""Items: whatever record type the user likes, as one JSON document."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec


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
        return _encode(item)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TypeError(f"the item can't be written as JSON: {error}. Item: {_shortened(item)}") from error


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
