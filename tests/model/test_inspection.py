"""The groups of dead letters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu.model.inspection import NO_MESSAGE, DeadGroup, count_kinds, group_reason


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("answered with status 404", "answered with status 404"),
        ("status 1234 of 500", "status N of N"),
        ("No answer within 30 s", "No answer within N s"),
        ("No answer within 5.5 s, at 10:20:30, of 1,000", "No answer within N s, at N, of N"),
        ("Cannot connect to a.example:8080", "Cannot connect to a.example:N"),
        ("redirects to https://a.example/x?y=1#z, which is no page", "redirects to URL which is no page"),
        ("KeyError: 'title'", "KeyError: '…'"),
        ('no field "price" in it', "no field '…' in it"),
        ("can't parse what isn't HTML", "can't parse what isn't HTML"),
        ("it's 'x' that can't be parsed", "it's '…' that can't be parsed"),
        ("<Thing object at 0x7f3ecb9471f0>", "<Thing object at N>"),
        ("request 550e8400-e29b-41d4-a716-446655440000 failed", "request N failed"),
        ("commit deadbeef1 of the defaced facade", "commit N of the defaced facade"),
        ("HTTP2 stream 7", "HTTPN stream N"),
        ("  first line  of\ttwo \nsecond line", "first line of two"),
        ("", NO_MESSAGE),
        (" \n ", NO_MESSAGE),
        ("x" * 500, "x" * 120),
    ],
)
def test_what_alike_reasons_share(reason: str, message: str) -> None:
    assert group_reason(reason) == message


texts = st.one_of(
    st.text(), st.text(alphabet="ab019 '\"-.:/x\nstatu"), st.text(min_size=100).map(lambda text: text * 30)
)


@given(texts)
def test_a_message_is_one_short_line(reason: str) -> None:
    message = group_reason(reason)
    assert 0 < len(message) <= 120
    assert message.splitlines() == [message]


@given(texts, st.integers(0, 10**12), st.integers(0, 10**12))
def test_numbers_do_not_matter(text: str, one: int, other: int) -> None:
    assert group_reason(f"worker {one} {text}") == group_reason(f"worker {other} {text}")


@given(st.text(alphabet=st.characters(exclude_characters="'", exclude_categories=["Cc", "Zl", "Zp"])))
def test_quoted_texts_do_not_matter(text: str) -> None:
    assert group_reason(f"KeyError: '{text}'") in ("KeyError: '…'", group_reason(f"KeyError: '{text}"))


def test_kinds_are_counted() -> None:
    groups = [
        DeadGroup(kind=kind, message=message, count=count, last=0.0, sample="")
        for kind, message, count in (("http", "a", 3), ("dns", "b", 4), ("http", "c", 2))
    ]
    assert list(count_kinds(groups).items()) == [("http", 5), ("dns", 4)]
    assert count_kinds([]) == {}
