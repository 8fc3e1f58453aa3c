"""Which characters a body means, by the HTML and Encoding standards.

In this order: a byte order mark, the charset of ``Content-Type``, what the document says of itself
(HTML in a ``<meta>`` within its first 1024 bytes, XML in its declaration), else UTF-8 if the bytes
are valid UTF-8, else windows-1252. Labels mean what browsers take them to mean, not what they say:
latin1 and ascii are windows-1252, gb2312 is read as GB18030. A label nobody knows is as good as
none. Invalid bytes become U+FFFD; nothing here raises.
"""

from __future__ import annotations

import re
from typing import Final

from weft.spider.charset_labels import CODECS, LABELS

_PRESCAN: Final = 1024
_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be"))
# What most of the web sends, known without looking closer.
_USUAL: Final = frozenset(
    f"text/html;{space}charset={name}" for space in ("", " ") for name in ("utf-8", "UTF-8", "utf8", "Utf-8")
)
# The five bytes that windows-1252 has, as controls, and Python's cp1252 has not.
_C1: Final = {byte: bytes([byte]).decode("cp1252") for byte in range(0x80, 0xA0) if byte not in b"\x81\x8d\x8f\x90\x9d"}

_parameter: Final = re.compile(
    r"""(?:^|[;,\s])charset\s*=\s*(?:"([^"]*)"?|'([^']*)'?|([^\s;"',]+))""", re.IGNORECASE
).search
_xml_declaration: Final = re.compile(rb"""<\?xml\s[^>]*?encoding\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE).match

# The prescan of the HTML standard: tags are followed by attributes, everything else is stepped over.
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
_in_content: Final = re.compile(rb"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"'][^\s;]*))""", re.IGNORECASE).search


def decode(body: bytes, content_type: str | None) -> tuple[str, str]:
    """The text of ``body``, and the standard's name of the encoding it was read in."""
    encoding, mark = _declared(body, content_type)
    data = body[mark:]
    if encoding:
        return _text(data, encoding), encoding
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return _text(data, "windows-1252"), "windows-1252"


def is_utf8(body: bytes, content_type: str | None) -> bool:
    """Whether ``decode`` reads ``body`` as UTF-8, so that a parser may be given the bytes as they are.

    Quick where it is declared; only an undeclared encoding costs a look at the whole body.
    """
    encoding, _ = _declared(body, content_type)
    if encoding:
        return encoding == "utf-8"
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def encoding_of(label: str) -> str:
    """The encoding that browsers understand by ``label``; empty if none."""
    return LABELS.get(label.strip("\t\n\f\r ").lower(), "")


def _declared(body: bytes, content_type: str | None) -> tuple[str, int]:
    """The encoding that is declared, empty if none is, and the length of the byte order mark."""
    if body[:1] in (b"\xef", b"\xff", b"\xfe"):
        for mark, encoding in _BOMS:
            if body.startswith(mark):
                return encoding, len(mark)
    if not content_type:
        return _of_html(body) or _of_xml(body), 0
    if content_type in _USUAL:
        return "utf-8", 0
    found = _parameter(content_type)
    if found and (encoding := encoding_of(found[1] or found[2] or found[3] or "")):
        return encoding, 0
    kind = content_type.partition(";")[0].strip().lower()
    encoding = _of_xml(body) if kind.endswith(("/xml", "+xml")) else ""
    if not encoding and "html" in kind:
        encoding = _of_html(body) or _of_xml(body)
    return encoding, 0


def _of_xml(body: bytes) -> str:
    if body.startswith(b"<\0?\0x\0"):
        return "utf-16le"
    if body.startswith(b"\0<\0?\0x"):
        return "utf-16be"
    found = _xml_declaration(body, 0, _PRESCAN)
    return _named(found[1] or found[2] or b"") if found else ""


def _of_html(body: bytes) -> str:
    head = body[:_PRESCAN]
    if b"charset" not in head.lower():
        return ""
    position = 0
    while found := _markup.search(head, position):
        position = found.end()
        if found.lastgroup is not None:
            attributes, position = _attributes(head, position)
            if found.lastgroup == "meta" and (encoding := _of_meta(attributes)):
                return encoding
    return ""


def _attributes(head: bytes, position: int) -> tuple[dict[bytes, bytes], int]:
    attributes: dict[bytes, bytes] = {}
    while found := _attribute.match(head, position):
        attributes.setdefault(found["name"].lower(), found["double"] or found["single"] or found["bare"] or b"")
        position = found.end()
    return attributes, position


def _of_meta(attributes: dict[bytes, bytes]) -> str:
    if b"charset" in attributes:
        return _named(attributes[b"charset"])
    if attributes.get(b"http-equiv", b"").lower() == b"content-type":
        found = _in_content(attributes.get(b"content", b""))
        return _named(found[1] or found[2] or found[3] or b"") if found else ""
    return ""


def _named(label: bytes) -> str:
    """The encoding of a label inside the document. Since it could be read as ASCII, it is not UTF-16."""
    encoding = encoding_of(label.decode("latin-1"))
    return "utf-8" if encoding.startswith("utf-16") else encoding


def _text(data: bytes, encoding: str) -> str:
    if encoding == "windows-1252":
        try:
            return data.decode("cp1252")
        except UnicodeDecodeError:
            return data.decode("latin-1").translate(_C1)
    return data.decode(CODECS.get(encoding, encoding), "replace")
