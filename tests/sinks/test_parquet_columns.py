"""Kinds of columns: what comes out of which values, in whatever order they come."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu.sinks.parquet import MAX_DEPTH, MAX_FIELDS, Kind, ListKind, ScalarKind, StructKind, fit, make_storable, widen

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


def kind_of(*values: Any) -> Kind:
    kind: Kind = ScalarKind.NULL
    for value in values:
        kind = widen(kind, value)
    return kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], ScalarKind.NULL),
        ([None, None], ScalarKind.NULL),
        ([True, None], ScalarKind.BOOL),
        ([1, None], ScalarKind.INT),
        ([1, 1.5], ScalarKind.FLOAT),
        (["a", None], ScalarKind.TEXT),
        ([1, "a"], ScalarKind.TEXT),
        ([1, True], ScalarKind.TEXT),
        ([1.5, True], ScalarKind.TEXT),
        ([2**63], ScalarKind.TEXT),
        ([-(2**63)], ScalarKind.INT),
        ([[1], [2.5], []], ListKind(ScalarKind.FLOAT)),
        ([[1], 1], ScalarKind.JSON),
        ([{"a": 1}, {"b": ["x"]}], StructKind({"a": ScalarKind.INT, "b": ListKind(ScalarKind.TEXT)})),
        ([{"a": 1}, "x"], ScalarKind.JSON),
        ([{"a": 1}, [1]], ScalarKind.JSON),
        ([[{"a": 1}, 2]], ListKind(ScalarKind.JSON)),
    ],
)
def test_kinds(values: list[Any], kind: Kind) -> None:
    assert kind_of(*values) == kind
    assert kind_of(*reversed(values)) == kind


def test_keys_that_hold_data_become_json() -> None:
    assert kind_of({str(n): n for n in range(MAX_FIELDS + 1)}) is ScalarKind.JSON


def test_deep_values_become_json_at_the_limit() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH + 3):
        value = [value]
    kind = kind_of(value)
    for _ in range(MAX_DEPTH):
        assert isinstance(kind, ListKind)
        kind = kind.element
    assert kind is ScalarKind.JSON


def test_what_parquet_can_not_say() -> None:
    assert make_storable(ScalarKind.NULL) is ScalarKind.TEXT
    assert make_storable(kind_of({})) is ScalarKind.JSON
    assert make_storable(kind_of({"a": {}, "b": []})) == StructKind(
        {"a": ScalarKind.JSON, "b": ListKind(ScalarKind.TEXT)}
    )


@given(st.lists(documents, max_size=5), st.randoms())
def test_the_order_of_values_does_not_matter(values: list[Any], random: Any) -> None:
    kind = kind_of(*values)
    random.shuffle(values)
    assert kind_of(*values) == kind


@given(st.lists(documents, max_size=5))
def test_every_value_fits_and_none_is_lost(values: list[Any]) -> None:
    kind = make_storable(kind_of(*values))
    for value in values:
        assert same(kind, value, fit(kind, value))


def same(kind: Kind, value: Any, stored: Any) -> bool:
    if value is None:
        return stored is None
    if isinstance(kind, StructKind):
        fields = value.keys() <= kind.fields.keys() and stored.keys() == kind.fields.keys()
        return fields and all(same(each, value.get(key), stored[key]) for key, each in kind.fields.items())
    if isinstance(kind, ListKind):
        return len(value) == len(stored) and all(map(same, [kind.element] * len(value), value, stored))
    if kind is ScalarKind.JSON or (kind is ScalarKind.TEXT and not isinstance(value, str)):
        return bool(json.loads(stored) == value)
    return bool(stored == (float(value) if kind is ScalarKind.FLOAT else value))
