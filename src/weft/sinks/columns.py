"""What type a column has, found from its values.

A kind starts at NULL and widens with every value, never back, so the result does not depend on
the order of the items:

    bool ─────────────┐
    int ── float ─────┼── text ──┐
    string ───────────┘          ├── JSON text
    list of a kind ──────────────┤
    struct of kinds ─────────────┘

Text means: strings as they are, other scalars as JSON would write them. Scalars beside lists or
structs in one column, structs with too many different keys (keys that hold data) and values
nested too deep are kept whole, as JSON text. Integers beyond 64 bits are text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from weft.sinks.rows import json, text

MAX_FIELDS: Final = 200
MAX_DEPTH: Final = 8
_INT64: Final = range(-(1 << 63), 1 << 63)


class Scalar(Enum):
    NULL = auto()
    BOOL = auto()
    INT = auto()
    FLOAT = auto()
    TEXT = auto()
    JSON = auto()


@dataclass(slots=True)
class Struct:
    """An object with these fields, in the order in which they were first seen."""

    fields: dict[str, Kind] = field(default_factory=dict)


@dataclass(slots=True)
class List:
    """A list whose elements are of one kind."""

    element: Kind = Scalar.NULL


Kind = Scalar | Struct | List


def widen(kind: Kind, value: Any, depth: int = 0) -> Kind:
    """The narrowest kind for all that ``kind`` was seen to hold and for ``value``; may change ``kind`` in place."""
    if value is None or kind is Scalar.JSON:
        return kind
    if isinstance(value, dict):
        return _widen_struct(Struct() if kind is Scalar.NULL else kind, value, depth)
    if isinstance(value, list):
        return _widen_list(List() if kind is Scalar.NULL else kind, value, depth)
    return _widen_scalar(kind, _scalar(value))


def _widen_struct(kind: Kind, value: dict[str, Any], depth: int) -> Kind:
    if not isinstance(kind, Struct) or depth >= MAX_DEPTH:
        return Scalar.JSON
    for key, each in value.items():
        kind.fields[key] = widen(kind.fields.get(key, Scalar.NULL), each, depth + 1)
    return kind if len(kind.fields) <= MAX_FIELDS else Scalar.JSON


def _widen_list(kind: Kind, value: list[Any], depth: int) -> Kind:
    if not isinstance(kind, List) or depth >= MAX_DEPTH:
        return Scalar.JSON
    for each in value:
        kind.element = widen(kind.element, each, depth + 1)
    return kind


def _widen_scalar(kind: Kind, seen: Scalar) -> Kind:
    if kind is Scalar.NULL or kind is seen:
        return seen
    if not isinstance(kind, Scalar):
        return Scalar.JSON
    return Scalar.FLOAT if {kind, seen} == {Scalar.INT, Scalar.FLOAT} else Scalar.TEXT


def _scalar(value: Any) -> Scalar:
    if isinstance(value, bool):
        return Scalar.BOOL
    if isinstance(value, int):
        return Scalar.INT if value in _INT64 else Scalar.TEXT
    return Scalar.FLOAT if isinstance(value, float) else Scalar.TEXT


def storable(kind: Kind) -> Kind:
    """The kind without what a Parquet file can't say: a column of nothing, a struct without fields."""
    if kind is Scalar.NULL:
        return Scalar.TEXT
    if isinstance(kind, Struct):
        return Struct({key: storable(each) for key, each in kind.fields.items()}) if kind.fields else Scalar.JSON
    if isinstance(kind, List):
        return List(storable(kind.element))
    return kind


def fit(kind: Kind, value: Any) -> Any:
    """The value as its column holds it."""
    if value is None:
        return None
    if isinstance(kind, Struct):
        return {key: fit(each, value.get(key)) for key, each in kind.fields.items()}
    if isinstance(kind, List):
        return [fit(kind.element, each) for each in value]
    match kind:
        case Scalar.FLOAT:
            return float(value)
        case Scalar.TEXT:
            return text(value)
        case Scalar.JSON:
            return json(value)
        case _:
            return value
