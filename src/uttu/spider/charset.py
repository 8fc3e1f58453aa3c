"""Find the encoding of a body, by the HTML and Encoding standards, and decode it.

In this order: a byte order mark, the charset of ``Content-Type``, the document's own declaration (HTML: a ``<meta>``;
XML: its declaration), UTF-8 if the bytes are valid UTF-8, windows-1252. The label table is that of the WHATWG Encoding
standard, so labels mean what they mean in browsers: latin1 and ascii are windows-1252, gb2312 is GBK. An unknown label
counts as no label. Invalid bytes become U+FFFD; no input raises.

Browsers look for ``<meta>`` in the first 1,024 bytes before they parse (the standard's "prescan"). If they find one
later, they change the encoding and start again. Here, if nothing else declares the encoding, the first
``LATE_META_BYTES`` are searched for such a ``<meta>``, outside of comments and scripts.

:func:`decode` returns the text, :func:`find_encoding` only the name. :mod:`uttu.spider.encodings` does the decoding,
:mod:`uttu.spider.detection` guesses the encoding of a body that declares none.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from uttu.model.url import QueryEncoder
from uttu.spider import encodings

# Encoding: its labels, without those that follow from the name (see _derive_labels).
_EXTRA_LABELS: Final = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf8 x-unicode20utf8",
    "utf-16be": "unicodefffe",
    "utf-16le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16",
    "ibm866": "866 cp866 csibm866",
    "iso-8859-2": "csisolatin2 iso-ir-101 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso-8859-3": "csisolatin3 iso-ir-109 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso-8859-4": "csisolatin4 iso-ir-110 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso-8859-5": "csisolatincyrillic cyrillic iso-ir-144 iso_8859-5 iso_8859-5:1988",
    "iso-8859-6": (
        "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6-e iso-8859-6-i "
        "iso-ir-127 iso_8859-6 iso_8859-6:1987"
    ),
    "iso-8859-7": ("csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso_8859-7 iso_8859-7:1987 sun_eu_greek"),
    "iso-8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8-e iso-ir-138 iso_8859-8 iso_8859-8:1988 visual",
    "iso-8859-8-i": "csiso88598i logical",
    "iso-8859-10": "csisolatin6 iso-ir-157 l6 latin6",
    "iso-8859-13": "",
    "iso-8859-14": "",
    "iso-8859-15": "csisolatin9 iso_8859-15 l9",
    "iso-8859-16": "",
    "koi8-r": "cskoi8r koi koi8 koi8_r",
    "koi8-u": "koi8-ru",
    "macintosh": "csmacintosh mac x-mac-roman",
    "x-mac-cyrillic": "x-mac-ukrainian",
    "windows-874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620",
    "windows-1250": "",
    "windows-1251": "",
    "windows-1252": (
        "ansi_x3.4-1968 ascii cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 iso_8859-1 "
        "iso_8859-1:1987 l1 latin1 us-ascii"
    ),
    "windows-1253": "",
    "windows-1254": "csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5",
    "windows-1255": "",
    "windows-1256": "",
    "windows-1257": "",
    "windows-1258": "",
    "gbk": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 iso-ir-58 x-gbk",
    "gb18030": "",
    "big5": "big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc-jp": "cseucpkdfmtjapanese x-euc-jp",
    "iso-2022-jp": "csiso2022jp",
    "shift_jis": "csshiftjis ms932 ms_kanji shift-jis sjis windows-31j x-sjis",
    "replacement": "csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr",
    "x-user-defined": "",
    "euc-kr": "cseuckr csksc56011987 iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949",
}


def _derive_labels(encoding: str) -> list[str]:
    """The labels that follow from the name itself."""
    if encoding.startswith("windows-125"):
        page = encoding.removeprefix("windows-")
        return [encoding, f"cp{page}", f"x-cp{page}"]
    if encoding.startswith("iso-8859-") and encoding[9:].isdigit() and encoding != "iso-8859-16":
        part = encoding.removeprefix("iso-8859-")
        return [encoding, f"iso8859-{part}", f"iso8859{part}"]
    return [encoding]


LABELS: Final = {
    label: encoding
    for encoding, others in _EXTRA_LABELS.items()
    for label in (*_derive_labels(encoding), *others.split())
}


LATE_META_BYTES: Final = 256 * 1024
"""Bytes at the beginning of a body that are searched for a ``<meta charset>``."""

_PRESCAN_BYTES: Final = 1024
_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be"))
HTML_UTF8_TYPES: Final = frozenset(
    f"text/html;{space}charset={name}" for space in ("", " ") for name in ("utf-8", "UTF-8", "utf8", "Utf-8")
)
"""Content types that most of the web sends: HTML in UTF-8. No further parsing is needed."""
_search_charset_parameter: Final = re.compile(
    r"""(?:^|[;,\s])charset\s*=\s*(?:"([^"]*)"?|'([^']*)'?|([^\s;"',]+))""", re.IGNORECASE
).search
_match_xml_declaration: Final = re.compile(
    rb"""<\?xml\s[^>]*?encoding\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE
).match

# The prescan of the HTML standard: it reads the attributes of tags and skips everything else.
_markup: Final = re.compile(
    rb"""
      <!--(?:-?>|.*?(?:-->|\Z))
    | (?P<meta><meta(?=[\s/]))
    | (?P<tag></?[a-z][^\s>]*)
    | <[!/?][^>]*>?
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_attribute: Final = re.compile(
    rb"""
    [\s/]*
    (?P<name>[^\s/>][^\s/>=]*)
    (?:\s*=\s*(?:"(?P<double>[^"]*)(?:"|\Z)|'(?P<single>[^']*)(?:'|\Z)|(?P<bare>[^\s>]*)))?
    """,
    re.VERBOSE,
)
_search_content_charset: Final = re.compile(
    rb"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"'][^\s;]*))""", re.IGNORECASE
).search
# For a late <meta>: elements whose content is text up to their end tag, as in a browser that runs scripts.
_RAW_TEXT_ELEMENTS: Final = (
    b"script",
    b"style",
    b"textarea",
    b"title",
    b"xmp",
    b"iframe",
    b"noembed",
    b"noframes",
    b"noscript",
)
_search_raw_end: Final = {
    name: re.compile(rb"</%s(?=[\s/>])" % name, re.IGNORECASE).search for name in _RAW_TEXT_ELEMENTS
}


def decode(body: bytes, content_type: str | None) -> tuple[str, str]:
    """The text of ``body``, and the name of its encoding in the Encoding standard."""
    encoding, mark = _find_declared(body, content_type)
    data = body[mark:]
    if encoding and encoding != "utf-8":
        return encodings.decode(data, encoding), encoding
    if encoding:
        return data.decode("utf-8", "replace"), encoding
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        encoding = _detect(data)
        return encodings.decode(data, encoding), encoding


def find_encoding(body: bytes, content_type: str | None) -> str:
    """The encoding that ``decode`` uses for ``body``, without decoding it.

    Fast if the encoding is declared. Otherwise this reads the whole body.
    """
    encoding, _ = _find_declared(body, content_type)
    if encoding:
        return encoding
    if body.isascii():
        return "utf-8"
    try:
        body.decode()
    except UnicodeDecodeError:
        return _detect(body)
    return "utf-8"


def _detect(body: bytes) -> str:
    from uttu.spider.detection import detect  # most pages do without

    return detect(body)


def is_utf8(body: bytes, content_type: str | None) -> bool:
    """Whether ``decode`` reads ``body`` as UTF-8. Then a parser can take the bytes unchanged."""
    return find_encoding(body, content_type) == "utf-8"


def query_encoder(encoding: str) -> QueryEncoder | None:
    """A function that encodes the queries of links on a page in ``encoding``, as browsers do. None means UTF-8."""
    if encoding in ("utf-8", "replacement") or encoding.startswith("utf-16"):
        return None
    return partial(encodings.percent_encode, encoding=encoding)


def encoding_of(label: str) -> str:
    """The encoding that browsers use for ``label``; empty if the label is unknown."""
    return LABELS.get(label.strip("\t\n\f\r ").lower(), "")


def _find_declared(body: bytes, content_type: str | None) -> tuple[str, int]:
    """The declared encoding (empty if none is declared), and the length of the byte order mark in bytes."""
    if body[:1] in (b"\xef", b"\xff", b"\xfe"):
        for mark, encoding in _BOMS:
            if body.startswith(mark):
                return encoding, len(mark)
    if not content_type:
        return _find_in_html(body) or _find_in_xml(body), 0
    if content_type in HTML_UTF8_TYPES:
        return "utf-8", 0
    match = _search_charset_parameter(content_type)
    if match and (encoding := encoding_of(match[1] or match[2] or match[3] or "")):
        return encoding, 0
    kind = content_type.partition(";")[0].strip().lower()
    encoding = _find_in_xml(body) if kind.endswith(("/xml", "+xml")) else ""
    if not encoding and "html" in kind:
        encoding = _find_in_html(body) or _find_in_xml(body)
    return encoding, 0


def _find_in_xml(body: bytes) -> str:
    if body.startswith(b"<\0?\0x\0"):
        return "utf-16le"
    if body.startswith(b"\0<\0?\0x"):
        return "utf-16be"
    match = _match_xml_declaration(body, 0, _PRESCAN_BYTES)
    return _resolve_label(match[1] or match[2] or b"") if match else ""


def _find_in_html(body: bytes) -> str:
    head = body[:_PRESCAN_BYTES]
    position = 0
    if b"charset" in head.lower():
        while match := _markup.search(head, position):
            position = match.end()
            if match.lastgroup is not None:
                attributes, position = _parse_attributes(head, position)
                if position == _PRESCAN_BYTES < len(body):
                    break  # the tag continues after the prescan
                if match.lastgroup == "meta" and (encoding := _find_in_meta(attributes)):
                    return encoding
    return _find_in_late_meta(body) if len(body) > _PRESCAN_BYTES else ""


def _find_in_late_meta(body: bytes) -> str:
    head = body[:LATE_META_BYTES]
    last = head.lower().rfind(b"charset")
    if last < _PRESCAN_BYTES // 2:
        return ""  # the prescan has seen the last "charset" and the rest of its tag
    position = 0
    while (match := _markup.search(head, position)) and match.end() <= last:
        position = match.end()
        if match.lastgroup is None:
            continue
        attributes, position = _parse_attributes(head, position)
        if match.lastgroup == "meta" and (encoding := _find_in_meta(attributes)):
            return encoding
        if find_end := _search_raw_end.get(match[0][1:].lower()):
            end = find_end(head, position)
            if end is None:
                break
            position = end.start()
    return ""


def _parse_attributes(head: bytes, position: int) -> tuple[dict[bytes, bytes], int]:
    attributes: dict[bytes, bytes] = {}
    while match := _attribute.match(head, position):
        attributes.setdefault(match["name"].lower(), match["double"] or match["single"] or match["bare"] or b"")
        position = match.end()
    return attributes, position


def _find_in_meta(attributes: dict[bytes, bytes]) -> str:
    if b"charset" in attributes:
        return _resolve_label(attributes[b"charset"])
    if attributes.get(b"http-equiv", b"").lower() == b"content-type":
        match = _search_content_charset(attributes.get(b"content", b""))
        return _resolve_label(match[1] or match[2] or match[3] or b"") if match else ""
    return ""


def _resolve_label(label: bytes) -> str:
    """The encoding of a label inside the document. UTF-16 is impossible there, since the label was read as ASCII."""
    encoding = encoding_of(label.decode("latin-1"))
    if encoding.startswith("utf-16"):
        return "utf-8"
    return "windows-1252" if encoding == "x-user-defined" else encoding
