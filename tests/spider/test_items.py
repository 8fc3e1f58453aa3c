"""Records of every kind are the same JSON; what else handlers may yield is tested in test_spider."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from uttu.spider.items import encode

Record = Mapping[str, Any]


# Making a class takes a hundred times as long as writing it: so of a few names, each set of them once.
NAMES = ("bx", "ax", "cx")
PRIVATE = (*NAMES, "_dx", "_ay")


@functools.cache
def _class(kind: str, names: tuple[str, ...]) -> Callable[..., Any]:
    match kind:
        case "dataclass":
            return dataclasses.make_dataclass("D", names)
        case "frozen dataclass":
            return dataclasses.make_dataclass("F", names, frozen=True, slots=True)
        case "struct":
            return msgspec.defstruct("S", names, frozen=True)
        case "attrs":
            return attrs.make_class("A", list(names), slots=True)
        case "attrs without slots":
            return attrs.make_class("B", list(names), slots=False, frozen=True)
    model = pydantic.create_model("P", **dict.fromkeys(names, (Any, ...)))  # type: ignore[call-overload]
    return lambda *values: model(**dict(zip(names, values, strict=True)))


def make(kind: str, fields: Record) -> Any:
    return dict(fields) if kind == "dict" else _class(kind, tuple(fields))(*fields.values())


# pydantic knows the others' records as little as they know its own, and takes a field with an underscore for private.
MIXABLE = ("dict", "dataclass", "frozen dataclass", "struct", "attrs", "attrs without slots")

scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, -1e300]) | st.text(max_size=3)


class Node(msgspec.Struct):
    """A record that is yet to be made."""

    fields: dict[str, Any]
    kind: str


def nodes(names: Sequence[str], kinds: Sequence[str]) -> st.SearchStrategy[Node]:
    keys = st.sampled_from(names)

    def record(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Node]:
        return st.builds(Node, st.dictionaries(keys, values, min_size=1), st.sampled_from(kinds))

    values = st.recursive(
        scalars, lambda inner: record(inner) | st.lists(inner, max_size=3) | st.dictionaries(keys, inner), max_leaves=6
    )
    return record(values)


def made(value: Any, kind: str = "") -> Any:
    """All the records of a tree, each as it is to be, or all of one kind."""
    match value:
        case Node():
            return make(kind or value.kind, {key: made(each, kind) for key, each in value.fields.items()})
        case dict():
            return {key: made(each, kind) for key, each in value.items()}
        case list():
            return [made(each, kind) for each in value]
    return value


@pytest.mark.parametrize("kind", [*MIXABLE[1:], "pydantic"])
@given(node=nodes(NAMES, ["dict"]))
def test_records_of_one_kind_are_the_same_json(kind: str, node: Node) -> None:
    assert encode(made(node, kind)) == encode(made(node, "dict"))


@given(node=nodes(PRIVATE, MIXABLE))
def test_records_within_records_are_the_same_json(node: Node) -> None:
    plain = made(node, "dict")
    assert encode(made(node)) == msgspec.json.encode(plain)


def test_attrs_objects_in_other_records() -> None:
    @attrs.define
    class Price:
        value: int
        _currency: str

    class Tagged(msgspec.Struct, tag="lamp", rename="upper"):
        name: str
        prices: tuple[Price, ...]

    @dataclasses.dataclass
    class Counted:
        prices: list[Price]
        count: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            self.count = len(self.prices)

    price = Price(2, "EUR")
    expected = b'{"value":2,"_currency":"EUR"}'
    assert encode(Tagged("oak", (price,))) == b'{"type":"lamp","NAME":"oak","PRICES":[%b]}' % expected
    assert encode(Counted([price, price])) == b'{"prices":[%b,%b],"count":2}' % (expected, expected)


def test_unset_attrs_field_is_omitted() -> None:
    @attrs.define
    class Late:
        b: int
        a: int = attrs.field(init=False)

    assert encode(Late(1)) == b'{"b":1}'


def test_the_items_themselves_stay_as_they_are() -> None:
    @attrs.define
    class Inner:
        n: int

    @dataclasses.dataclass
    class Outer:
        inner: Inner

    outer = Outer(Inner(1))
    assert encode(outer) == b'{"inner":{"n":1}}'
    assert isinstance(outer.inner, Inner)


class Text(str):
    """As lxml's strings."""

    __slots__ = ("parent",)


class Number(int):
    pass


class Fraction(float):
    pass


class Raw(bytes):
    pass


def test_values_of_subclasses_are_stored_as_their_base() -> None:
    item = {Text("a"): Text("é"), "n": [Number(3), Fraction(0.5)], "raw": Raw(b"x"), 2: {"deep": Text("b")}}
    assert encode(item) == encode({"a": "é", "n": [3, 0.5], "raw": b"x", 2: {"deep": "b"}})
    assert encode(make("attrs", {"ax": Text("c")})) == b'{"ax":"c"}'


def test_the_strings_of_lxml() -> None:
    found: Any = etree.fromstring("<a><b>one</b></a>").xpath("b/text()")
    (text,) = found
    assert type(text) is not str
    assert encode({"text": text}) == b'{"text":"one"}'
