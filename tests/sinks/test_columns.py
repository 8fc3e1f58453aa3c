"""Kinds of columns: what comes out of which values, in whatever order they come."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.sinks.columns import MAX_DEPTH, MAX_FIELDS, Kind, List, Scalar, Struct, fit, storable, widen

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


def kind_of(*values: Any) -> Kind:
    kind: Kind = Scalar.NULL
    for value in values:
        kind = widen(kind, value)
    return kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], Scalar.NULL),
        ([None, None], Scalar.NULL),
        ([True, None], Scalar.BOOL),
        ([1, None], Scalar.INT),
        ([1, 1.5], Scalar.FLOAT),
        (["a", None], Scalar.TEXT),
        ([1, "a"], Scalar.TEXT),
        ([1, True], Scalar.TEXT),
        ([1.5, True], Scalar.TEXT),
        ([2**63], Scalar.TEXT),
        ([-(2**63)], Scalar.INT),
        ([[1], [2.5], []], List(Scalar.FLOAT)),
        ([[1], 1], Scalar.JSON),
        ([{"a": 1}, {"b": ["x"]}], Struct({"a": Scalar.INT, "b": List(Scalar.TEXT)})),
        ([{"a": 1}, "x"], Scalar.JSON),
        ([{"a": 1}, [1]], Scalar.JSON),
        ([[{"a": 1}, 2]], List(Scalar.JSON)),
    ],
)
def test_kinds(values: list[Any], kind: Kind) -> None:
    assert kind_of(*values) == kind
    assert kind_of(*reversed(values)) == kind


def test_keys_that_hold_data_become_json() -> None:
    assert kind_of({str(n): n for n in range(MAX_FIELDS + 1)}) is Scalar.JSON


def test_deep_values_become_json_at_the_limit() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH + 3):
        value = [value]
    kind = kind_of(value)
    for _ in range(MAX_DEPTH):
        assert isinstance(kind, List)
        kind = kind.element
    assert kind is Scalar.JSON


def test_what_parquet_can_not_say() -> None:
    assert storable(Scalar.NULL) is Scalar.TEXT
    assert storable(kind_of({})) is Scalar.JSON
    assert storable(kind_of({"a": {}, "b": []})) == Struct({"a": Scalar.JSON, "b": List(Scalar.TEXT)})


@given(st.lists(documents, max_size=5), st.randoms())
def test_the_order_of_values_does_not_matter(values: list[Any], random: Any) -> None:
    kind = kind_of(*values)
    random.shuffle(values)
    assert kind_of(*values) == kind


@given(st.lists(documents, max_size=5))
def test_every_value_fits_and_none_is_lost(values: list[Any]) -> None:
    kind = storable(kind_of(*values))
    for value in values:
        assert same(kind, value, fit(kind, value))


def same(kind: Kind, value: Any, stored: Any) -> bool:
    if value is None:
        return stored is None
    if isinstance(kind, Struct):
        fields = value.keys() <= kind.fields.keys() and stored.keys() == kind.fields.keys()
        return fields and all(same(each, value.get(key), stored[key]) for key, each in kind.fields.items())
    if isinstance(kind, List):
        return len(value) == len(stored) and all(map(same, [kind.element] * len(value), value, stored))
    if kind is Scalar.JSON or (kind is Scalar.TEXT and not isinstance(value, str)):
        return bool(json.loads(stored) == value)
    return bool(stored == (float(value) if kind is Scalar.FLOAT else value))
