from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fetch.servers import chunked, response
from uttu.fetch.http1_parser import HEAD_LIMIT, BodyLimitExceeded, InvalidResponse, ResponseParser

BODY = b"warp and uttu"


def read(data: bytes, *, limit: int = 1000, cuts: tuple[int, ...] = (), closed: bool = False) -> ResponseParser:
    """The response in ``data``, which comes in pieces; it must be complete with the last and not before."""
    reading = ResponseParser(limit)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[begin:end] for begin, end in pairwise(edges) if begin < end]
    for piece in pieces[:-1]:
        assert not reading.feed(piece)
    complete = reading.feed(pieces[-1])
    assert complete is not closed
    if closed:
        assert reading.end()
    return reading


WHOLE = {
    "length": response(BODY, "X-A: 1"),
    "chunks": chunked(BODY[:4], BODY[4:], headers=("X-A: 1",)),
    "extensions and trailers": b"HTTP/1.1 200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"d;name=value\r\nwarp and uttu\r\n0;last\r\nTrailer: 1\r\nAnother: 2\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\nX-A: 1\nTransfer-Encoding: chunked\n\nd\nwarp and uttu\n0\n\n",
    "no reason": b"HTTP/1.1 200\r\nX-A: 1\r\nContent-Length: 13\r\n\r\nwarp and uttu",
    "chunks of a byte": chunked(*(bytes((byte,)) for byte in BODY), headers=("X-A: 1",)),
    "notes before it": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nX-A: 0\r\n\r\n" + response(BODY, "X-A: 1"),
    "empty lines before it": b"\r\n\n" + response(BODY, "X-A: 1"),
    "a size with zeros": b"HTTP/1.1 200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"00000000000000000000d\r\nwarp and uttu\r\n0000000000000000000\r\n\r\n",
    "several codings": b"HTTP/1.1 200 OK\r\nX-A: 1\r\n"
    b"Transfer-Encoding: identity\r\ntransfer-encoding: x, Chunked\r\n\r\nD\r\nwarp and uttu\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("data", WHOLE.values(), ids=WHOLE)
@given(cuts=st.lists(st.integers(0, 400), max_size=8).map(tuple))
def test_data_in_pieces_of_any_size(data: bytes, cuts: tuple[int, ...]) -> None:
    reading = read(data, cuts=cuts)
    assert (reading.status, reading.version, reading.body, reading.keep_alive) == (200, "HTTP/1.1", BODY, True)
    assert reading.headers.get_all("x-a") == ["1"]


@given(cuts=st.lists(st.integers(0, 400), max_size=8).map(tuple))
def test_body_until_connection_closes(cuts: tuple[int, ...]) -> None:
    reading = read(b"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\n" + BODY, cuts=cuts, closed=True)
    assert (reading.body, reading.keep_alive) == (BODY, False)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=3).map(tuple))
def test_anything_is_read_or_refused(data: bytes, cuts: tuple[int, ...]) -> None:
    for head in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        reading = ResponseParser(100)
        edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        try:
            done = reading.feed(head) if head else False
            for begin, end in pairwise(edges):
                done = done or reading.feed(data[begin:end])
        except (InvalidResponse, BodyLimitExceeded):
            continue
        assert len(reading.body) <= 100


@pytest.mark.parametrize(
    "text",
    [
        b"abc",
        b"-5",
        b"-1",
        b"12abc",
        b"+7",
        b"",
        b" ",
        b"0x5",
        b"5.0",
        b"1 2",
        b"\xc2\xb2",
        b"\xb2",
        b"1" * 19,
        b"1" * 5000,
        b"abc\r\nContent-Length: abc",
        b"abc, abc",
    ],
)
def test_invalid_content_length_is_ignored(text: bytes) -> None:
    """As in Chromium: the body ends with the connection."""
    reading = read(b"HTTP/1.1 200 OK\r\nContent-Length: " + text + b"\r\n\r\n" + BODY, closed=True)
    assert (reading.body, reading.keep_alive) == (BODY, False)


@pytest.mark.parametrize("text", [b"13", b"013", b"0" * 5000 + b"13", b"13, 13", b"13\r\nContent-Length: 13", b"\t13 "])
def test_content_length_forms(text: bytes) -> None:
    reading = read(b"HTTP/1.1 200 OK\r\nContent-Length: " + text + b"\r\n\r\n" + BODY)
    assert (reading.body, reading.keep_alive) == (BODY, True)


@pytest.mark.parametrize("status", [204, 304])
def test_responses_without_body(status: int) -> None:
    reading = read(b"HTTP/1.1 %d Nothing\r\nContent-Length: 10\r\n\r\n" % status)
    # Of a 304 it is the length of the page; a 204 that has one may be followed by a body.
    assert (reading.body, reading.keep_alive) == (b"", status == 304)


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore", False),
        (b"HTTP/1.1 204 No\r\n\r\n", True),
        (b"HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 304 Same\r\nTransfer-Encoding: chunked\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n0\r\n\r\n", False),
    ],
)
def test_keep_alive(head: bytes, keeps: bool) -> None:
    assert read(head).keep_alive is keeps


@pytest.mark.parametrize(
    ("lines", "pairs"),
    [
        (b"A: 1\r\nB:2\r\nA:  3 \r\n", [("a", "1"), ("b", "2"), ("a", "3")]),
        (b"Spaced : 1\r\nno header\r\n: no name\r\ntwo words: x\r\nB: 2\r\n", [("spaced", "1"), ("b", "2")]),
        (b"A: 1\r\n 2\r\n\t3\r\nB:\r\n", [("a", "1 2 3"), ("b", "")]),
        (b"A: x\rInjected: y\r\nB: \0\r\nC: \x01\r\nD: \t4\r\n", [("d", "4")]),
        ("A: é\r\n".encode(), [("a", "é")]),
        ("A: é\r\n".encode("latin-1"), [("a", "é")]),
        (b"A: \xe9\r\nB: \xc3\xa9\r\n", [("a", "é"), ("b", "é")]),
        (b"location: /\xe9?\xff=1\r\nB: \xc3\xa9\r\n", [("location", "/%E9?%FF=1"), ("b", "é")]),
    ],
)
def test_headers(lines: bytes, pairs: list[tuple[str, str]]) -> None:
    reading = read(b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 0\r\n\r\n")
    assert reading.headers.pairs() == (*pairs, ("content-length", "0"))


@pytest.mark.parametrize("coding", [b"identity", b" Identity ", b"", b"identity, identity"])
def test_identity_is_no_transfer_coding(coding: bytes) -> None:
    """The length counts; the host keeps the connection open."""
    reading = read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + coding + b"\r\nContent-Length: 13\r\n\r\n" + BODY)
    assert (reading.body, reading.keep_alive) == (BODY, False)


@pytest.mark.parametrize("minor", [2, 9])
def test_later_minor_versions(minor: int) -> None:
    reading = read(b"HTTP/1.%d 200 OK\r\nContent-Length: 13\r\n\r\n" % minor + BODY)
    assert (reading.version, reading.body, reading.keep_alive) == ("HTTP/1.1", BODY, True)


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"SSH-2.0-OpenSSH", "not HTTP"),
        (b"HTTP/2 200\r\n\r\n", "invalid status line"),
        (b"HTTP/1.1 99 Low\r\n\r\n", "invalid status line"),
        (b"HTTP/1.1 2000 High\r\n\r\n", "invalid status line"),
        (b"HTTP/1.1 101 Switch\r\n\r\n", "unexpected 101 Switching Protocols"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n", "conflicting Content-Length"),
        (b"HTTP/1.1 100 Wait\n\n" * 21, r"more than 19 interim responses \(1xx\)"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "conflicting Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: abc\r\n\r\n", "conflicting Content-Length"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * HEAD_LIMIT, "head longer than"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * HEAD_LIMIT + b"\r\n\r\n", "head longer than"),
        (CHUNKS + b"x\r\n", "invalid chunk size b'x'"),
        (CHUNKS + b"-1\r\n", "invalid chunk size"),
        (CHUNKS + b"1\r\nab\r\n", "chunk longer than its size"),
        (CHUNKS + b"1" * 5000, "chunk without a size"),
        (CHUNKS + b"1\r\nx\r\n" * 100_000, "chunks too small"),
        (CHUNKS + b"0\r\n" + b"a: 1\r\n" * 50_000, "trailers too long"),
    ],
)
def test_invalid_responses(data: bytes, why: str) -> None:
    with pytest.raises(InvalidResponse, match=why):
        ResponseParser(100_000).feed(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "Content-Length: 1001"),
        (CHUNKS + b"fffffff\r\n" + b"x" * 1001, "reading stopped there"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001, "reading stopped there"),
    ],
)
def test_bodies_that_are_too_large(data: bytes, why: str) -> None:
    with pytest.raises(BodyLimitExceeded, match=why):
        ResponseParser(1000).feed(data)


@pytest.mark.parametrize(
    "data", [b"", b"HTT", b"HTTP/1.1 200 OK\r\nX: 1", response(BODY, length=99), CHUNKS + b"5\r\nab"]
)
def test_incomplete_responses(data: bytes) -> None:
    reading = ResponseParser(1000)
    assert not (data and reading.feed(data))
    assert not reading.end()


def test_heads_made_to_take_long() -> None:
    for line in (b"X: " + b" " * 200_000 + b"x\r\n folded", b"X: 1" + b"\r\n 2" * 50_000, b"X: " + b"\t" * 200_000):
        reading = read(b"HTTP/1.1 200 OK\r\n" + line + b"\r\nContent-Length: 0\r\n\r\n")
        assert reading.headers["content-length"] == "0"


def test_a_head_that_comes_byte_by_byte_takes_no_time() -> None:
    reading = ResponseParser(10)
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X: 1\n" * 50_000:
        assert not reading.feed(bytes((byte,)))
    assert reading.feed(b"Content-Length: 0\r\n\r\n")
    assert len(reading.headers.get_all("x")) == 50_000
