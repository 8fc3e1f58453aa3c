from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from uttu.spider.charset import LATE_META_BYTES, decode, encoding_of, find_encoding, is_utf8

HTML = "text/html"


@pytest.mark.parametrize(
    ("label", "encoding"),
    [
        ("utf8", "utf-8"),
        (" UTF-8\n", "utf-8"),
        ("latin1", "windows-1252"),
        ("ISO-8859-1", "windows-1252"),
        ("us-ascii", "windows-1252"),
        ("x-user-defined", "x-user-defined"),
        ("iso-8859-9", "windows-1254"),
        ("iso8859-2", "iso-8859-2"),
        ("iso88595", "iso-8859-5"),
        ("tis-620", "windows-874"),
        ("cp1251", "windows-1251"),
        ("gb2312", "gbk"),
        ("gb18030", "gb18030"),
        ("sjis", "shift_jis"),
        ("ks_c_5601-1987", "euc-kr"),
        ("big5-hkscs", "big5"),
        ("unicode", "utf-16le"),
        ("utf-7", ""),
        ("iso-2022-kr", "replacement"),
        ("hz-gb-2312", "replacement"),
        ("iso-8859-16", "iso-8859-16"),
        ("iso8859-16", ""),
        ("koi8-ru", "koi8-u"),
        ("no such thing", ""),
        ("", ""),
    ],
)
def test_labels_mean_what_browsers_mean(label: str, encoding: str) -> None:
    assert encoding_of(label) == encoding


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        # A byte order mark wins over everything.
        (b"\xef\xbb\xbfcaf\xc3\xa9", "text/html; charset=latin1", ("café", "utf-8")),
        (b"\xff\xfec\0a\0f\0\xe9\0", "text/html; charset=utf-8", ("café", "utf-16le")),
        (b"\xfe\xff\0c\0a\0f\0\xe9", None, ("café", "utf-16be")),
        # Then the header.
        (b"<meta charset=utf-8>caf\xe9", "text/html;charset=iso-8859-1", ("<meta charset=utf-8>café", "windows-1252")),
        (b"caf\xe9", 'text/html; charset="windows-1252"', ("café", "windows-1252")),
        (b"caf\xe9", "text/html; foo=bar; CharSet = 'latin1'", ("café", "windows-1252")),
        (b"\xcf\xf0\xe8\xe2\xe5\xf2", "text/html; charset=windows-1251", ("Привет", "windows-1251")),
        ("日本語".encode("cp932"), "text/html; charset=Shift_JIS", ("日本語", "shift_jis")),
        ("中文㐀".encode("gb18030"), "text/html; charset=gb2312", ("中文㐀", "gbk")),
        ("한국어 똠".encode("cp949"), "text/plain; charset=euc-kr", ("한국어 똠", "euc-kr")),
        ("中文".encode("big5"), "text/html; charset=big5", ("中文", "big5")),
        # A label nobody knows is as good as none.
        ("café".encode(), "text/html; charset=nonsense", ("café", "utf-8")),
        # Then the document, HTML only where it may be HTML.
        (b"<meta charset='latin1'>\xe9", HTML, ("<meta charset='latin1'>é", "windows-1252")),
        (b'{"a": "<meta charset=koi8-r>"}', "application/json", ('{"a": "<meta charset=koi8-r>"}', "utf-8")),
        (b"<meta charset=koi8-r>", "text/plain", ("<meta charset=koi8-r>", "utf-8")),
        # Then a guess.
        ("café".encode(), None, ("café", "utf-8")),
        (b"caf\xe9", None, ("café", "windows-1252")),
        (b"\x80\x81\x9f", HTML, ("€\x81Ÿ", "windows-1252")),
        (b"", None, ("", "utf-8")),
        # What does not decode is replaced.
        (b"caf\xe9!", "text/html; charset=utf-8", ("caf\ufffd!", "utf-8")),
    ],
)
def test_decode(body: bytes, content_type: str | None, expected: tuple[str, str]) -> None:
    assert decode(body, content_type) == expected
    assert is_utf8(body, content_type) == (expected[1] == "utf-8")


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        (b"<META CHARSET=KOI8-R>", "koi8-r"),
        (b'<meta charset = "koi8-r" />', "koi8-r"),
        (b"<meta/charset=koi8-r>", "koi8-r"),
        (b'<meta name=x content="charset=big5"><meta charset=koi8-r>', "koi8-r"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">', "koi8-r"),
        (b"<meta content='text/html; charset=\"koi8-r\"' http-equiv=content-type>", "koi8-r"),
        (b"<meta http-equiv=refresh content='0; charset=koi8-r'>", "utf-8"),
        (b'<meta content="text/html; charset=koi8-r">', "utf-8"),
        (b"<!-- <meta charset=big5> --><meta charset=koi8-r>", "koi8-r"),
        (b"<!--><meta charset=koi8-r>-->", "koi8-r"),
        (b"<!-- <meta charset=koi8-r>", "utf-8"),
        (b"<a title='<meta charset=big5>'><meta charset=koi8-r>", "koi8-r"),
        (b"<a title=x><meta charset=koi8-r>", "koi8-r"),
        (b"</a title='<meta charset=big5>'><meta charset=koi8-r>", "koi8-r"),
        (b"<!doctype html><?php x ?><meta charset=koi8-r>", "koi8-r"),
        (b"<metadata charset=big5><meta charset=koi8-r>", "koi8-r"),
        (b"<meta charset=nonsense><meta charset=koi8-r>", "koi8-r"),
        (b"<meta charset=nonsense http-equiv=content-type content='charset=big5'>", "utf-8"),
        (b"<meta charset='' charset=big5><meta charset=koi8-r>", "koi8-r"),
        (b"<meta charset=utf-16le>", "utf-8"),
        (b"<meta charset=utf-16>\xe9", "utf-8"),
        (b"<meta charset=x-user-defined>", "windows-1252"),
        (b"<p =><meta =charset=big5 charset=koi8-r>", "koi8-r"),
        (b"<meta charset='koi8-r", "koi8-r"),
        (b" " * 990 + b"<meta charset=koi8-r>", "koi8-r"),
        *((b" " * (1024 - cut) + b"<meta charset=iso-8859-15>", "iso-8859-15") for cut in range(1, 27)),
        (b"<?xml version='1.0' encoding='koi8-r'?><html>", "koi8-r"),
        (b"<?xml version='1.0' encoding='big5'?><meta charset=koi8-r>", "koi8-r"),
        ("<?xml version='1.0'?><p>".encode("utf-16-le"), "utf-16le"),
        ("<?xml version='1.0'?><p>".encode("utf-16-be"), "utf-16be"),
    ],
)
def test_encoding_declared_in_html(head: bytes, encoding: str) -> None:
    assert decode(head, HTML)[1] == encoding
    assert decode(head, None)[1] == encoding
    assert is_utf8(head, HTML) == (encoding == "utf-8")


@pytest.mark.parametrize("before", [b" " * 2000, b" " * 1000, b"<p>x</p>" * 20_000, b"<!--" + b"x" * 5000 + b"-->"])
@pytest.mark.parametrize(
    ("late", "encoding"),
    [
        (b"<meta charset=koi8-r>", "koi8-r"),
        (b"<MeTa ChArSeT = 'KOI8-R'>", "koi8-r"),
        (b"<meta http-equiv=content-type content='text/html; charset=koi8-r'>", "koi8-r"),
        (b"<body><div><meta charset=koi8-r>", "koi8-r"),
        (b"<script>'charset'</script><script src=x charset=big5></script><meta charset=koi8-r>", "koi8-r"),
        (b"<meta charset=nonsense><meta charset=koi8-r><meta charset=big5>", "koi8-r"),
        (b"<!-- <meta charset=koi8-r> -->", "utf-8"),
        (b"<script>x = '<meta charset=koi8-r>'</script>", "utf-8"),
        (b"<SCRIPT>x = '<meta charset=koi8-r>'", "utf-8"),
        (b"<style><meta charset=koi8-r></style><title><meta charset=big5></title>", "utf-8"),
        (b"<textarea><meta charset=koi8-r></textarea>", "utf-8"),
        (b"<noscript><meta charset=koi8-r></noscript>", "utf-8"),
        (b"<a title='<meta charset=koi8-r>'>", "utf-8"),
        (b"<meta charset=utf-16>", "utf-8"),
    ],
)
def test_a_late_meta_counts_as_in_browsers(before: bytes, late: bytes, encoding: str) -> None:
    body = b"<html><head>" + before + late + b"</head>\xd0\x9f"
    assert decode(body, HTML) == (body.decode(encoding), encoding)
    assert find_encoding(body, HTML) == encoding
    assert decode(body, "text/html; charset=utf-8")[1] == "utf-8"
    assert decode(b"<meta charset=utf-8>" + body, HTML)[1] == "utf-8"


def test_meta_search_is_bounded() -> None:
    body = b" " * LATE_META_BYTES + b"<meta charset=koi8-r>"
    assert decode(body, HTML)[1] == "utf-8"
    assert decode(body[100:], HTML)[1] == "koi8-r"


@pytest.mark.parametrize("unit", [b"<meta charset", b"<!--", b"<script>charset", b"<a charset=x ", b"<a 'charset"])
def test_looking_for_a_meta_takes_linear_time(unit: bytes) -> None:
    spent = []
    for size in (20_000, 160_000):
        began = time.process_time()
        find_encoding(unit * (size // len(unit)) + b"charset", HTML)
        spent.append(time.process_time() - began)
    assert spent[1] < 0.05 + 32 * spent[0]


@pytest.mark.parametrize("kind", ["text/xml", "application/xml", "application/rss+xml; x=y", "APPLICATION/ATOM+XML"])
def test_encoding_declared_in_xml(kind: str) -> None:
    body = b'<?xml version="1.0" encoding="windows-1251"?><a>\xcf</a>'
    assert decode(body, kind) == ('<?xml version="1.0" encoding="windows-1251"?><a>П</a>', "windows-1251")
    assert decode(b"<a>\xc3\xa9<meta charset=koi8-r></a>", kind)[1] == "utf-8"
    assert decode(body, f"{kind}; charset=utf-8")[1] == "utf-8"


kinds = st.one_of(
    st.none(),
    st.sampled_from([HTML, "text/xml", "text/html; charset=utf-8", "text/html;charset=gbk", "application/json"]),
    st.text(max_size=30),
)
pieces = st.sampled_from(
    [b"<meta ", b"charset=", b"utf-8", b"koi8-r", b"'", b'"', b">", b"<!--", b"-->", b"<", b"/", b"http-equiv=", b"="]
)
bodies = st.one_of(st.binary(max_size=100), st.lists(pieces, max_size=12).map(b"".join))


@given(bodies, kinds)
@example(b"<\0?\0x\0\xff", HTML)
def test_nothing_raises_and_both_agree(body: bytes, content_type: str | None) -> None:
    text, encoding = decode(body, content_type)
    assert isinstance(text, str)
    assert is_utf8(body, content_type) == (encoding == "utf-8")
    assert find_encoding(body, content_type) == encoding


@given(st.text())
def test_utf8_comes_back_whole(text: str) -> None:
    body = text.encode(errors="ignore")
    assert decode(body, "text/plain; charset=UTF-8")[0] == body.decode().removeprefix("\ufeff")


def test_long_headers_take_no_longer() -> None:
    for content_type in (" " * 200_000, "charset" * 30_000, "; charset " * 20_000, "/xml" * 50_000):
        assert decode(b"x", content_type) == ("x", "utf-8")
