"""Bytes that are invalid in the encoding that they claim, for every label; and labels that contradict one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from uttu.testing.site.hostile.model import Kind, page

LABELS: Final = (
    "utf-8",
    "ibm866",
    "iso-8859-2",
    "iso-8859-3",
    "iso-8859-4",
    "iso-8859-5",
    "iso-8859-6",
    "iso-8859-7",
    "iso-8859-8",
    "iso-8859-8-i",
    "iso-8859-10",
    "iso-8859-13",
    "iso-8859-14",
    "iso-8859-15",
    "iso-8859-16",
    "koi8-r",
    "koi8-u",
    "macintosh",
    "windows-874",
    "windows-1250",
    "windows-1251",
    "windows-1252",
    "windows-1253",
    "windows-1254",
    "windows-1255",
    "windows-1256",
    "windows-1257",
    "windows-1258",
    "x-mac-cyrillic",
    "gbk",
    "gb18030",
    "big5",
    "euc-jp",
    "iso-2022-jp",
    "shift_jis",
    "euc-kr",
    "replacement",
    "utf-16be",
    "utf-16le",
    "x-user-defined",
    "utf-7",
    "utf-32",
    "hz-gb-2312",
    "cesu-8",
    "rot13",
    "base64",
    "zlib",
    "idna",
    "punycode",
    "unicode_escape",
    "undefined",
    "mbcs",
)
_MB: Final = 1024 * 1024
_EVERY: Final = bytes(range(256)) * 64


def _kind(name: str, about: str, make: Callable[[], bytes], content_type: str = "text/html") -> Kind:
    return Kind(name=f"charsets/{name}", about=about, reply=page(make, content_type))


def _labelled(label: str) -> Kind:
    return _kind(
        f"invalid-{label.replace('_', '-')}",
        f"every byte and all pairs of them as {label}",
        lambda: b"<title>x</title>" + _EVERY + b"".join(bytes((a, b)) for a in range(128, 256) for b in range(256)),
        f"text/html; charset={label}",
    )


def _meta(label: str) -> bytes:
    return f"<meta charset={label}>".encode()


KINDS: Final = (
    *map(_labelled, LABELS),
    _kind("utf16-odd", "UTF-16 with half a character at the end", lambda: b"\xff\xfe" + "x".encode("utf-16-le") + b"y"),
    _kind("utf16-surrogates", "2 MB of lone surrogates", lambda: b"\xff\xfe" + b"\x00\xd8" * _MB),
    _kind("utf16-lie", "ASCII that claims to be UTF-16", lambda: b"<p>x" * 1000, "text/html; charset=utf-16"),
    _kind("utf16-meta", "ASCII whose meta says UTF-16", lambda: _meta("utf-16") + b"<p>x"),
    _kind(
        "utf16-mixed", "a UTF-16 mark before UTF-8", lambda: b"\xfe\xff" + b"<p>x" * 1000, "text/html; charset=utf-8"
    ),
    _kind("utf32", "UTF-32 with its mark", lambda: "<p>x".encode("utf-32") * 1000),
    _kind("marks", "a million byte order marks", lambda: b"\xef\xbb\xbf" * 1_000_000),
    _kind("meta-conflicts", "10,000 <meta charset>, all different", lambda: b"".join(map(_meta, LABELS)) * 200),
    _kind("meta-late", "a <meta charset> after a megabyte", lambda: b" " * _MB + _meta("shift_jis") + b"\x82\xa0"),
    _kind("meta-long", "a charset label of a megabyte", lambda: _meta("x" * _MB) + b"<p>x"),
    _kind("meta-unknown", "a charset that does not exist", lambda: _meta("klingon") + b"\xe4\xf6"),
    _kind("meta-open", "1 MB of unclosed <meta", lambda: b"<meta " + b"charset " * (_MB // 8)),
    _kind(
        "xml-declared",
        "a declaration that names another charset",
        lambda: b'<?xml version="1.0" encoding="ebcdic"?><p>x',
    ),
    _kind("overlong", "4 MB of overlong UTF-8", lambda: b"\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf" * (_MB // 2)),
    _kind("truncated", "UTF-8 cut in a character, 5 million times", lambda: b"\xf0\x9f\x98" * (5 * _MB // 3)),
    _kind(
        "escapes",
        "a million switches of ISO-2022-JP",
        lambda: b"\x1b$B\x1b(B" * 700_000,
        "text/html; charset=iso-2022-jp",
    ),
    _kind(
        "four-bytes",
        "15 MB of GB 18030 in four bytes",
        lambda: b"\x81\x30\x81\x30" * (_MB * 3),
        "text/html; charset=gb18030",
    ),
    _kind("big5", "10 MB of Big5", lambda: b"\xa4\xa4" * (5 * _MB), "text/html; charset=big5"),
    _kind(
        "undefined",
        "10 MB that EUC-JP does not define",
        lambda: b"\x8f\xa1\xa1" * (3 * _MB),
        "text/html; charset=euc-jp",
    ),
)
