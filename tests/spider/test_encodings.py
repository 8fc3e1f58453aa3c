"""Every sequence of every legacy encoding, held against checksums of what the Encoding standard gives.

The checksums are of an implementation of the standard (npm: @exodus/bytes 1.16, which passes the Web Platform
Tests). Each is over the texts of all sequences in order, joined with NUL.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu.spider import encodings
from uttu.spider.charset import LABELS
from uttu.spider.encodings import decode, percent_encode

SINGLE_BYTES = {
    "ibm866": "08fad809c413f266",
    "iso-8859-2": "252dc05182451e03",
    "iso-8859-3": "8ac119898900fc38",
    "iso-8859-4": "b629357388cb10e7",
    "iso-8859-5": "ad603f8df16e0a0b",
    "iso-8859-6": "14397c5a730589b4",
    "iso-8859-7": "f39c08f33bf2cf9c",
    "iso-8859-8": "ad5ceafb58489754",
    "iso-8859-8-i": "ad5ceafb58489754",
    "iso-8859-10": "4c3a956d98f6764c",
    "iso-8859-13": "630f317a1c958bde",
    "iso-8859-14": "553cc765c0dbbd7d",
    "iso-8859-15": "6bf2a0f1a1503a16",
    "iso-8859-16": "211adea2d5bd5210",
    "koi8-r": "81e87e3d01059f88",
    "koi8-u": "d6c830e8a1376beb",
    "macintosh": "1c77ee2df9d4173f",
    "windows-874": "24cc1eaaed283c60",
    "windows-1250": "da8c384b8edfe29d",
    "windows-1251": "b6543dc1fdc5db53",
    "windows-1252": "cf05d097537841f4",
    "windows-1253": "b4b98c97399530bf",
    "windows-1254": "e29717178d68d6cc",
    "windows-1255": "706dae0ef2c433d4",
    "windows-1256": "e17ca2cafb7f795a",
    "windows-1257": "b7da8e890de32c3f",
    "windows-1258": "cbe86161cd3ca31c",
    "x-mac-cyrillic": "7a7b7a142a03e613",
    "x-user-defined": "dcd66de01fa33ed1",
}
# Lead bytes from 0x80 on, and for ISO-2022-JP all, with every second byte.
PAIRS = {
    "gbk": "6aea6030d0391169",
    "gb18030": "6aea6030d0391169",
    "big5": "196efe94eb8f4193",
    "euc-kr": "fb50aec830919ceb",
    "shift_jis": "e0f02c0ff9638496",
    "euc-jp": "d2c829eb4576a8b2",
    "iso-2022-jp": "c9158d73a2016dbb",
}
# Every character from U+0080 to U+FFFF but surrogates.
ENCODED = {
    "gbk": "dfc855614cb6340d",
    "gb18030": "4fd7b206930021ea",
    "big5": "b91a9fb6ba051b7c",
    "euc-kr": "5b68a7885792864d",
    "shift_jis": "a6ef09507be0ff1f",
    "euc-jp": "fe91196278dbf27f",
    "iso-2022-jp": "9dff07a2ebe25b60",
    "windows-1251": "9db212fcd83add42",
    "windows-1252": "52bea6e5ddcf2175",
    "koi8-u": "2424c8bd42c1e108",
    "windows-874": "ba9b79e5bbaf016c",
    "windows-1255": "8e106b8fa4fcf374",
    "x-user-defined": "79505d5394c0dd6b",
    "iso-8859-8-i": "3b380c4d3a877324",
    "macintosh": "58fbfdd85ec17d22",
    "iso-8859-2": "21d7b893ad90d584",
    "ibm866": "a5204ef76c088248",
    "x-mac-cyrillic": "304fd1616d9f663d",
}


def checksum(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


@pytest.mark.parametrize("encoding", SINGLE_BYTES)
def test_single_bytes(encoding: str) -> None:
    assert checksum(decode(bytes([byte]), encoding) for byte in range(256)) == SINGLE_BYTES[encoding]


@pytest.mark.parametrize("encoding", PAIRS)
def test_pairs(encoding: str) -> None:
    escape, leads = (b"\x1b$B", range(256)) if encoding == "iso-2022-jp" else (b"", range(0x80, 256))
    texts = (decode(escape + bytes((lead, trail)), encoding) for lead in leads for trail in range(256))
    assert checksum(texts) == PAIRS[encoding]


def test_three_bytes_of_euc_jp() -> None:
    texts = (decode(bytes((0x8F, lead, trail)), "euc-jp") for lead in range(0x80, 256) for trail in range(256))
    assert checksum(texts) == "2ddcbcc6bf919140"


def test_four_bytes_of_gb18030() -> None:
    leads, digits = range(0x81, 0xFF), range(0x30, 0x3A)
    sequences = b"".join(bytes((a, b, c, d)) for a in leads for b in digits for c in leads for d in digits)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(encodings, "MAX_ERRORS", len(sequences))
        assert checksum([decode(sequences, "gb18030")]) == "92bdae0e6267fb86"


@pytest.mark.parametrize("encoding", ENCODED)
def test_encoded_queries(encoding: str) -> None:
    points = (point for point in range(0x80, 0x10000) if not 0xD800 <= point < 0xE000)
    assert checksum(percent_encode(chr(point), encoding) for point in points) == ENCODED[encoding]


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        (b"\xad\xa1\xad\xea\xad\xe2\xfc\xe2", "euc-jp", "①㈱№髙"),
        (b"\x1b$B-!-j-b|b\x1b(B!", "iso-2022-jp", "①㈱№髙!"),
        (b"\x80 \xa2\xe3", "gbk", "€ €"),
        (b"\xae\xbe", "koi8-u", "ўЎ"),
        (b"\xa2\x41\xa1\xfe\xa2\x42\xa2\x40", "big5", "∕／﹨＼"),
        # An ASCII byte after a bad lead byte is kept: markup can't be hidden in half a character.
        (b"\x81<b>", "shift_jis", "\ufffd<b>"),
        (b"\xe3<b>", "euc-jp", "\ufffd<b>"),
        (b"\x8f\xa1<b>", "euc-jp", "\ufffd<b>"),
        (b"\xff<b>", "big5", "\ufffd<b>"),
        (b"\x81\x30<b>", "gb18030", "\ufffd0<b>"),
        (b"\x81\x30\x81<b>", "gb18030", "\ufffd0\ufffd<b>"),
        (b"\x81\x30\x81", "gb18030", "\ufffd"),
        (b"\x1b(I1\x1b(J\\~\x1b(B\\~", "iso-2022-jp", "ｱ¥‾\\~"),
        (b"\x1b$B\x1b(B\x1b$Bx\x1b(B", "iso-2022-jp", "\ufffd\ufffd\ufffd"),
        (b"a\x1b$x\x0e\x1b", "iso-2022-jp", "a\ufffd$x\ufffd\ufffd"),
        (b"anything", "replacement", "\ufffd"),
        (b"", "replacement", ""),
        (b"\x00\xd8a\x00b", "utf-16le", "\ufffda\ufffd"),
    ],
)
def test_decode(data: bytes, encoding: str, text: str) -> None:
    assert decode(data, encoding) == text


@pytest.mark.parametrize(
    ("query", "encoding", "encoded"),
    [
        ("q=пример", "windows-1251", "q=%EF%F0%E8%EC%E5%F0"),
        ("q=日本&x=1", "shift_jis", "q=%93%FA%96{&x=1"),
        ("q=日本&x=1", "euc-jp", "q=%C6%FC%CB%DC&x=1"),
        ("q=日本&x=1", "iso-2022-jp", "q=%1B$BF|K\\%1B(B&x=1"),
        ("ｶﾞ¥\\−", "iso-2022-jp", "%1B$B%+!+%1B(J\\%1B(B\\%1B$B!]%1B(B"),
        ("中文€", "gbk", "%D6%D0%CE%C4%80"),
        ("中文€\U0001f600", "gb18030", "%D6%D0%CE%C4%A2%E3%949%FC6"),
        ("é\U0001f600<", "windows-1252", "%E9%26%23128512%3B<"),
        ("é", "windows-1251", "%26%23233%3B"),
        ("\uf7e9", "x-user-defined", "%E9"),
    ],
)
def test_percent_encode(query: str, encoding: str, encoded: str) -> None:
    assert percent_encode(query, encoding) == encoded


@given(st.binary(max_size=60), st.sampled_from(sorted(set(LABELS.values()) - {"utf-8"})))
def test_nothing_raises(data: bytes, encoding: str) -> None:
    text = decode(data, encoding)
    assert not any("\ud800" <= character <= "\udfff" for character in text)
    if not encoding.startswith("utf-16") and encoding != "replacement":
        assert percent_encode(text, encoding).isascii()


@pytest.mark.parametrize("encoding", [*PAIRS, "koi8-u"])
def test_hostile_bytes_take_linear_time(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "MAX_ERRORS", 2_000)
    for unit in (b"\xff", b"\xa2A", b"\x8f\xa2\xb7", b"\x1b$B", b"\x1b$B!", b"\x80", b"\x81\x30"):
        spent = []
        for size in (100_000, 800_000):
            began = time.process_time()
            decode(unit * (size // len(unit)), encoding)
            spent.append(time.process_time() - began)
        assert spent[1] < 0.05 + 32 * spent[0], (unit, spent)
