from __future__ import annotations

import pytest

from uttu.model import Links, Request
from uttu.model.url import Joiner

URLS = ["http://example.org/a", "http://example.org/b", "http://example.org/c"]
JOIN = Joiner("http://example.org/x/")
LINKS = Links(
    ["/a", " http://example.org/b ", "../c", "/a#top", "mailto:a@b.c"], JOIN, {"depth": 2, "handler": "product"}
)


def test_links_are_a_sequence_of_requests() -> None:
    made = [Request(url=url, depth=2, handler="product") for url in URLS]
    assert list(LINKS) == made
    assert made == LINKS
    assert [LINKS[0], LINKS[-1]] == [made[0], made[2]]
    assert LINKS[1:] == made[1:]
    assert len(LINKS) == 3
    assert made[1] in LINKS
    assert not Links([], JOIN, {})
    with pytest.raises(IndexError):
        LINKS[3]


def test_links_are_unequal_to_other_types() -> None:
    assert made_of(URLS[:2]) != LINKS
    assert LINKS != URLS
    assert LINKS != 3


def made_of(urls: list[str]) -> list[Request]:
    return [Request(url=url, depth=2, handler="product") for url in urls]


@pytest.mark.parametrize("field", [{"method": "POST"}, {"body": b"x"}, {"salt": "1"}])
def test_links_with_other_identity_are_not_plain(field: dict[str, str | bytes]) -> None:
    assert LINKS.is_plain
    assert not Links(URLS, JOIN, {"depth": 1, **field}).is_plain
