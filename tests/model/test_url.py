"""URLs: the short way of joining must give what the standard gives."""

from __future__ import annotations

import ada_url
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from uttu.model.url import Joiner, canonical, fingerprint, host_of, hostname_of, origin_of

BASES = [
    "http://example.org/",
    "https://example.org:8443/a/b/c.html?q=1",
    "http://127.0.0.1:8000/x",
    "http://u:p@h.example/d/",
]
links = st.one_of(
    st.text(alphabet="ab0/.?=&%-_~:@;,+!$'()*#\\ \t\n2eE[]|^", max_size=24),
    st.text(max_size=12),
    st.builds(
        "{}:{}".format, st.sampled_from(["http", "HTTPS", "mailto", "javascript", "c", "1"]), st.text(max_size=6)
    ),
    st.builds(
        "{}://{}{}/{}".format,
        st.sampled_from(["http", "https"]),
        st.text(alphabet="abz019.-X", min_size=1, max_size=14)
        | st.sampled_from(["a.xn--p1ai", "1.2.3.4", "1.2.3", "0.0.0.256"]),
        st.sampled_from(["", ":80", ":443", ":8080", ":08", ":65536", ":59999", ":0"]),
        st.text(alphabet="ab./?%2e", max_size=8),
    ),
    st.builds("{}/{}".format, st.sampled_from(BASES), st.text(alphabet="ab./?%2e#", max_size=12)),
)


@given(st.sampled_from(BASES), links)
@example("http://example.org/a/b", "/%2e%2e/x")
@example("http://example.org/a/b", "c:d")
@example("http://example.org/a/b", "//other.example/x")
@example("http://example.org", "http://example.org.evil.example/x")
@example("http://example.org/a/b?x=/y/z", "c")
@example("http://example.org/a/b", "a b")
@example("http://example.org/a/b", "x?y='1'")
@example("http://example.org/a/b", "\x85")
@example("http://example.org/a/b", "/c\xa0")
@example("http://example.org/a/b", "\x1f/c\x00 ")
@example("http://example.org/a/b?c", "#d")
@example("http://example.org/a/b?c", "")
@example("http://example.org/a/b?c", "?d#e")
@example("http://example.org/a/b?c", "?")
@example("http://example.org/a/b", "/c #d")
@example("http://example.org/a/b", "/%zz%")
@example("http://example.org/a/b", "x/%2E%2e/y")
@example("http://example.org/a/b", "http://h.example:80/x")
@example("http://example.org/a/b", "http://h.example//x")
@example("http://example.org/a/b", "https:x")
@example("http://example.org/a/b", "java\nscript:x")
@example("http://u:p@h.example/d/", "#e")
def test_join_is_the_standards(base: str, link: str) -> None:
    base = canonical(base)
    try:
        expected = ada_url.URL(link, base).href.partition("#")[0]
    except ValueError:
        assert Joiner(base)(link) is None
        return
    if expected.startswith(("http://", "https://")):
        assert Joiner(base)(link) == expected
    else:
        assert Joiner(base)(link) is None


@given(st.sampled_from(BASES), links)
def test_joined_links_are_canonical(base: str, link: str) -> None:
    joined = Joiner(canonical(base))(link)
    assert joined is None or canonical(joined) == joined


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("HTTP://EXAMPLE.org:80/a/../b?x#frag", "http://example.org/b?x"),
        ("https://münchen.example/ä", "https://xn--mnchen-3ya.example/%C3%A4"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("  https://example.org  ", "https://example.org/"),
        ("http://example.org/a b", "http://example.org/a%20b"),
    ],
)
def test_canonical(written: str, expected: str) -> None:
    assert canonical(written) == expected


@pytest.mark.parametrize(
    "written", ["", "example.org", "/path", "ftp://example.org/", "mailto:a@b.example", "http://", "http://a:b:c/"]
)
def test_not_a_url(written: str) -> None:
    with pytest.raises(ValueError, match="not an absolute"):
        canonical(written)


@pytest.mark.parametrize(
    ("url", "origin", "host", "name"),
    [
        ("http://example.org/a", "http://example.org", "example.org", "example.org"),
        ("https://example.org:8443/", "https://example.org:8443", "example.org:8443", "example.org"),
        ("http://u:p@example.org/", "http://u:p@example.org", "example.org", "example.org"),
        ("http://[::1]:80/", "http://[::1]:80", "[::1]:80", "[::1]"),
        ("http://[::1]/x", "http://[::1]", "[::1]", "[::1]"),
    ],
)
def test_parts(url: str, origin: str, host: str, name: str) -> None:
    assert (origin_of(url), host_of(url), hostname_of(url)) == (origin, host, name)


def test_fingerprints_tell_requests_apart() -> None:
    url = "http://example.org/"
    prints = {
        fingerprint(url),
        fingerprint(url, "HEAD"),
        fingerprint(url, "POST", b"a"),
        fingerprint(url, "POST", b"b"),
        fingerprint(url, salt="1"),
        fingerprint(url + "?"),
    }
    assert len(prints) == 6
    assert fingerprint(url, "GET", b"") == fingerprint(url)


@given(st.text(max_size=50), st.binary(max_size=20), st.text(max_size=5))
def test_a_fingerprint_is_a_signed_64_bit_number(url: str, body: bytes, salt: str) -> None:
    url = url.encode("utf-8", "replace").decode()
    salt = salt.encode("utf-8", "replace").decode()
    assert -(2**63) <= fingerprint(url, "POST", body, salt) < 2**63
    assert -(2**63) <= fingerprint(url) < 2**63


def test_joiner_uses_folder_of_base() -> None:
    joiner = Joiner("http://example.org/a/b.html?x=1/2")
    assert joiner("c.html") == "http://example.org/a/c.html"
    assert joiner("#top") == "http://example.org/a/b.html?x=1/2"
    assert joiner("?y") == "http://example.org/a/b.html?y"
    assert joiner("mailto:someone@example.org") is None
    assert joiner("javascript:void(0)") is None
