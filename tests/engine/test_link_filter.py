"""Each link passes once, however it is written down."""

from __future__ import annotations

import asyncio
import datetime
import time
from typing import Any

import pytest

from uttu.engine import link_filter as gates
from uttu.engine.link_filter import LinkFilter
from uttu.model import Links, Request
from uttu.model.url import Joiner
from uttu.policy.scope import Scope
from uttu.policy.traps import Traps

A, B, C = (f"http://example.org/{name}" for name in "abc")


def link_filter(scope: Scope | None = None) -> LinkFilter:
    return LinkFilter(scope or Scope(), Traps(datetime.date(2026, 1, 1)))


def links(texts: list[str], fields: dict[str, Any]) -> Links:
    return Links(texts, Joiner("http://example.org/x/"), fields)


def urls(requests: tuple[Request, ...]) -> list[str]:
    return [request.url for request in requests]


def test_links_and_requests_pass_in_the_order_they_came() -> None:
    found = link_filter().admit([Request(url=C), links([A, B, C], {"depth": 1}), Request(url=A)])
    assert urls(found) == [C, A, B]
    assert [request.depth for request in found] == [0, 1, 1]


def test_what_is_committed_does_not_pass_again() -> None:
    it = link_filter()
    assert urls(it.admit([links([A, B], {})])) == [A, B]
    assert urls(it.admit([links([A, B], {})])) == [A, B]  # not committed yet
    it.committed([Request(url=A)])
    assert urls(it.admit([links([A, B], {}), Request(url=A)])) == [B]


def test_the_same_url_by_another_method_is_another_request() -> None:
    it = link_filter()
    it.committed([Request(url=A)])
    posted = it.admit([links([A, B], {"method": "POST", "body": b"x"})])
    assert urls(posted) == [A, B]
    it.committed(posted)
    assert it.admit([links([A, B], {"method": "POST", "body": b"x"})]) == ()
    assert urls(it.admit([links([A, B], {"method": "POST", "body": b"y"})])) == [A, B]
    assert urls(it.admit([links([A, B], {})])) == [B]
    assert urls(it.admit([links([A], {"salt": "1"})])) == [A]


def test_what_is_out_of_scope_is_judged_once() -> None:
    it = link_filter(Scope(domains=["example.org"]))
    other = "http://other.example/"
    assert urls(it.admit([links([A, other], {})])) == [A]
    assert urls(it.admit([links([A, other], {})])) == [A]


def test_a_private_address_that_was_refused_to_one_host_is_not_to_itself() -> None:
    it = link_filter()
    private = "http://10.0.0.5/a"
    assert it.admit([links([private], {})], "example.org") == ()
    assert urls(it.admit([links([private], {})], "10.0.0.5")) == [private]


def test_what_a_page_leads_to_is_no_start() -> None:
    assert link_filter().admit([Request(url=A, start=True), Request(url=B)]) == (Request(url=A), Request(url=B))


def test_known_links_are_not_even_made_into_requests() -> None:
    it = link_filter()
    it.committed([Request(url=A)])
    # With a field that no request has, making one would fail.
    assert it.admit([links([A], {"colour": "red"})]) == ()


def test_links_are_remembered_by_their_text_only_where_it_leads_to_one_place() -> None:
    it = link_filter()
    it.committed([Request(url="http://example.org/x/a")])
    here, there = Joiner("http://example.org/x/"), Joiner("http://example.org/y/")
    for _ in range(2):
        assert it.admit([Links(["a", "/x/a"], here, {})]) == ()
        assert urls(it.admit([Links(["a", "/x/a"], there, {})])) == ["http://example.org/y/a"]
        assert urls(it.admit([Links(["/x/a"], Joiner("http://other.example/"), {})])) == ["http://other.example/x/a"]


def test_texts_that_take_too_much_room_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "_TEXT_BYTES", 1000)
    it = link_filter()
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
        link_filter().admit([links([A], fields)])


@pytest.mark.parametrize("body", ["né", bytearray("né".encode())])
def test_a_body_that_is_no_bytes_becomes_bytes(body: Any) -> None:
    it = link_filter()
    for given in (Request(url=A, method="POST", body=body), links([B], {"method": "POST", "body": body})):
        (request,) = it.admit([given])
        assert request.body == "né".encode()
        it.committed([request])
        assert it.admit([given]) == ()


def test_a_body_that_can_not_be_sent_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"is a dict.*json\.dumps"):
        link_filter().admit([Request(url=A, method="POST", body={"a": 1})])  # type: ignore[arg-type]


async def turn() -> None:
    await asyncio.sleep(0)


async def test_of_a_million_links_the_first_are_kept() -> None:
    door = link_filter()
    many = Links([f"/{n}" for n in range(1_000_000)], Joiner("http://example.org/"), {"handler": "", "depth": 1})
    gaps: list[float] = []

    async def beat() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0)
            gaps.append(time.monotonic() - began)

    beating = asyncio.create_task(beat())
    children, left = await door.admit_in_slices([many], "example.org", 50_000, turn)
    beating.cancel()
    assert [child.url for child in children] == [f"http://example.org/{n}" for n in range(50_000)]
    assert left == 950_000
    assert max(gaps) < 1


async def test_links_that_are_known_do_not_count() -> None:
    door = link_filter()
    many = Links([f"/{n}" for n in range(2000)], Joiner("http://example.org/"), {"handler": "", "depth": 1})
    first, left = await door.admit_in_slices([many], "example.org", 1500, turn)
    assert (len(first), left) == (1500, 500)
    door.committed(first)
    second, left = await door.admit_in_slices([many], "example.org", 1500, turn)
    assert [child.url for child in second] == [f"http://example.org/{n}" for n in range(1500, 2000)]
    assert left == 0


@pytest.mark.parametrize("most", [0, 10])
async def test_slices_give_what_the_whole_gives(most: int) -> None:
    requests: list[Request | Links] = [
        Request(url="http://example.org/x"),
        Links([f"/{n % 700}" for n in range(1200)], Joiner("http://example.org/"), {"handler": "", "depth": 1}),
        Request(url="http://example.org/y"),
        Links(["/a", "/x"], Joiner("http://example.org/"), {"handler": "h", "depth": 1}),
    ]
    whole = link_filter().admit(requests, "example.org")
    sliced, _ = await link_filter().admit_in_slices(requests, "example.org", most, turn)
    assert sliced == (whole[:most] if most else whole)


@pytest.mark.parametrize("field", [{"meta": {"text": "x" * gates.MAX_RECORD}}, {"body": b"x" * gates.MAX_RECORD}])
def test_a_request_that_is_too_large(field: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"of [\d,]+ bytes; 4,194,304 can be stored"):
        gates.validate_request(Request(url="http://example.org/", **field))
