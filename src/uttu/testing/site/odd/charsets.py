"""Text in many charsets, and the text that a browser shows.

======================  =====================================================================
``latin-1``             declared by the header
``windows-1251``        declared by ``<meta charset>``; the header has no charset
``shift_jis``           declared by ``<meta http-equiv>``
``utf-16``              declared only by the byte order mark
``bom``                 UTF-8 with a mark; the header says iso-8859-1, the mark wins
``wrong``               UTF-8, but the header says iso-8859-1: mojibake, as in a browser
``invalid``             declared as UTF-8, with invalid bytes: replacement characters
``unknown``             the header has an unknown label; UTF-8 by meta
======================  =====================================================================
"""

from __future__ import annotations

from typing import Final

import msgspec

from uttu.testing.site.message import Answer, Incoming, Reply


class Sample(msgspec.Struct, frozen=True):
    """A page in some charset. ``text`` is its ``<h1>`` as a browser shows it."""

    content_type: str
    body: bytes
    text: str


def _page(heading: str, meta: str = "") -> str:
    head = f"<head>{meta}<title>{heading}</title></head>"
    return f"<!doctype html>\n<html>{head}\n<body>\n<h1>{heading}</h1>\n</body></html>\n"


_FRENCH, _RUSSIAN, _JAPANESE = "Crème brûlée", "Привет, мир", "日本語の文章"
_HTTP_EQUIV = '<meta http-equiv="Content-Type" content="text/html; charset=Shift_JIS">'

CHARSETS: Final = {
    "latin-1": Sample("text/html; charset=iso-8859-1", _page(_FRENCH).encode("latin-1"), _FRENCH),
    "windows-1251": Sample("text/html", _page(_RUSSIAN, '<meta charset="windows-1251">').encode("cp1251"), _RUSSIAN),
    "shift_jis": Sample("text/html", _page(_JAPANESE, _HTTP_EQUIV).encode("shift_jis"), _JAPANESE),
    "utf-16": Sample("text/html", b"\xff\xfe" + _page(_RUSSIAN).encode("utf-16-le"), _RUSSIAN),
    "bom": Sample("text/html; charset=iso-8859-1", b"\xef\xbb\xbf" + _page(_FRENCH).encode(), _FRENCH),
    "wrong": Sample("text/html; charset=iso-8859-1", _page(_FRENCH).encode(), _FRENCH.encode().decode("cp1252")),
    "invalid": Sample(
        "text/html; charset=utf-8",
        _page(_FRENCH).encode("latin-1"),
        _FRENCH.encode("latin-1").decode("utf-8", "replace"),
    ),
    "unknown": Sample("text/html; charset=x-klingon", _page(_RUSSIAN, '<meta charset="utf-8">').encode(), _RUSSIAN),
}


def charset(parts: list[str], incoming: Incoming) -> Reply:
    sample = CHARSETS.get(parts[1]) if len(parts) == 2 else None
    return Answer(sample.body, sample.content_type) if sample else None
