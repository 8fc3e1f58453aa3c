"""Each link passes once, however it is written down."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from weft.engine import gate as gates
from weft.engine.gate import Gate
from weft.model import Links, Request
from weft.model.url import Joiner
from weft.policy.scope import Scope
from weft.policy.traps import Traps

A, B, C = (f"http://example.org/{name}" for name in "abc")


def gate(scope: Scope | None = None) -> Gate:
    return Gate(scope or Scope(), Traps(datetime.date(2026, 1, 1)))


def links(texts: list[str], fields: dict[str, Any]) -> Links:
    return Links(texts, Joiner("http://example.org/x/"), fields)


def urls(requests: tuple[Request, ...]) -> list[str]:
    return [request.url for request in requests]


def test_links_and_requests_pass_in_the_order_they_came() -> None:
    found = gate().admit([Request(url=C), links([A, B, C], {"depth": 1}), Request(url=A)])
    assert urls(found) == [C, A, B]
    assert [request.depth for request in found] == [0, 1, 1]


def test_what_is_committed_does_not_pass_again() -> None:
    it = gate()
    assert urls(it.admit([links([A, B], {})])) == [A, B]
    assert urls(it.admit([links([A, B], {})])) == [A, B]  # not committed yet
    it.committed([Request(url=A)])
    assert urls(it.admit([links([A, B], {}), Request(url=A)])) == [B]


def test_the_same_url_by_another_method_is_another_request() -> None:
    it = gate()
    it.committed([Request(url=A)])
    posted = it.admit([links([A, B], {"method": "POST", "body": b"x"})])
    assert urls(posted) == [A, B]
    it.committed(posted)
    assert it.admit([links([A, B], {"method": "POST", "body": b"x"})]) == ()
    assert urls(it.admit([links([A, B], {"method": "POST", "body": b"y"})])) == [A, B]
    assert urls(it.admit([links([A, B], {})])) == [B]
    assert urls(it.admit([links([A], {"salt": "1"})])) == [A]


def test_what_is_out_of_scope_is_judged_once() -> None:
    it = gate(Scope(domains=["example.org"]))
    other = "http://other.example/"
    assert urls(it.admit([links([A, other], {})])) == [A]
    assert urls(it.admit([links([A, other], {})])) == [A]


def test_a_private_address_that_was_refused_to_one_host_is_not_to_itself() -> None:
    it = gate()
    private = "http://10.0.0.5/a"
    assert it.admit([links([private], {})], "example.org") == ()
    assert urls(it.admit([links([private], {})], "10.0.0.5")) == [private]


def test_what_a_page_leads_to_is_no_start() -> None:
    assert gate().admit([Request(url=A, start=True), Request(url=B)]) == (Request(url=A), Request(url=B))


def test_known_links_are_not_even_made_into_requests() -> None:
    it = gate()
    it.committed([Request(url=A)])
    # With a field that no request has, making one would fail.
    assert it.admit([links([A], {"colour": "red"})]) == ()


def test_links_are_remembered_by_their_text_only_where_it_leads_to_one_place() -> None:
    it = gate()
    it.committed([Request(url="http://example.org/x/a")])
    here, there = Joiner("http://example.org/x/"), Joiner("http://example.org/y/")
    for _ in range(2):
        assert it.admit([Links(["a", "/x/a"], here, {})]) == ()
        assert urls(it.admit([Links(["a", "/x/a"], there, {})])) == ["http://example.org/y/a"]
        assert urls(it.admit([Links(["/x/a"], Joiner("http://other.example/"), {})])) == ["http://other.example/x/a"]


def test_texts_that_take_too_much_room_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "_TEXT_BYTES", 1000)
    it = gate()
    texts = [f"/{number}" for number in range(100)]
    it.committed(it.admit([links(texts, {})]))
    for _ in range(3):
        assert it.admit([links(texts, {})]) == ()
        assert sum(len(kept) for kept in it._known._texts.values()) < 10


@pytest.mark.parametrize(
    "fields", [{"handler": "", "depth": "2"}, {"handler": 3, "depth": 1}, {"depth": 1, "meta": {"a": object()}}]
)
def test_links_with_fields_that_cannot_be_stored_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="can't be stored"):
        gate().admit([links([A], fields)])
