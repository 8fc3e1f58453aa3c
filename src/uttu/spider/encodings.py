"""The legacy encodings of the WHATWG Encoding standard: bytes to text, and text to bytes for URL queries.

Python has a codec close to each of them, but none is exact: it lacks characters that browsers know (EUC-JP's ①, GBK's €
at 0x80), maps a few to others (EUC-JP's ～), or skips a different number of bytes after an error. So every encoding
here is Python's codec plus three corrections:

- an error handler (``codecs.register_error``) that reads one sequence as the standard does and returns the position
  after it. Python calls it only for sequences that its codec rejects;
- a replacement of the characters that Python's codec maps differently;
- for single-byte encodings, a table of 256 characters, built once from Python's codec.

ISO-2022-JP has its own decoder, because Python's has different states. The differences were found by decoding every
sequence of one to four bytes here and with an implementation of the standard; the tests hold checksums of the
standard's results.

UTF-8 is not handled here. No input raises: invalid bytes become U+FFFD. A handler call takes about a
microsecond, so a text with more than ``MAX_ERRORS`` of them keeps Python's own replacements.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Final

MAX_ERRORS: Final = 200_000
"""Sequences per text that are read one by one, about 0.2 s. A body of 16 MB can hold 16 million."""

_BAD: Final = "\ufffd"
_UNDEFINED: Final = "\ufffe"
"""The mark that ``codecs.charmap_decode`` expects for a byte without a character."""

# Python's codec for each encoding of the standard.
_SINGLE: Final = {
    **{f"iso-8859-{part}": f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **{f"windows-{page}": f"cp{page}" for page in (874, *range(1250, 1259))},
    "iso-8859-8-i": "iso8859-8",
    "ibm866": "cp866",
    "koi8-r": "koi8-r",
    "koi8-u": "koi8-u",
    "macintosh": "mac-roman",
    "x-mac-cyrillic": "mac-cyrillic",
    "x-user-defined": "ascii",
}
_DOUBLE: Final = {
    "gbk": "gb18030",
    "gb18030": "gb18030",
    "big5": "big5hkscs",
    "euc-jp": "euc_jp",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
}
_DIFFERENT_BYTES: Final = {
    "koi8-u": {0xAE: "ў", 0xBE: "Ў"},
    "windows-1255": {0xCA: "\u05ba"},
    "x-user-defined": {byte: chr(0xF700 + byte) for byte in range(0x80, 0x100)},
}
_GB18030: Final = str.maketrans(
    "\ue5e5\ue78d\ue78e\ue78f\ue790\ue791\ue792\ue793\ue794\ue795\ue796\ue7c7\u1e3f"
    "\ue81e\ue826\ue82b\ue82c\ue832\ue843\ue854\ue864",
    "\u3000\ufe10\ufe12\ufe11\ufe13\ufe14\ufe15\ufe16\ufe17\ufe18\ufe19\u1e3f\ue7c7"
    "\u9fb4\u9fb5\u9fb6\u9fb7\u9fb8\u9fb9\u9fba\u9fbb",
)
# Python's characters and the standard's. No two sequences of an encoding need the same key.
_DIFFERENT: Final = {
    "gbk": _GB18030,
    "gb18030": _GB18030,
    "big5": str.maketrans("\u2022\uff64\u203e\u223c\u2641\u2609\u00a5\u00a2\u00a3", "‧﹑¯～⊕⊙￥￠￡"),
    "euc-jp": str.maketrans("\u301c\u2016\u2212\u00a2\u00a3\u00ac", "～∥－￠￡￢"),
    "shift_jis": str.maketrans("\uf8f0\uf8f1\uf8f2\uf8f3", _BAD * 4),
}
# Big5 pairs that Python's codec lacks: the first pair of each run in hexadecimal, then the characters from there on.
_BIG5_MISSING: Final = (
    "877a㡵𡵓𣚞𦀡㻬𥣞㫵竼龗𤅡𨤍𣇪𠪊𣉞䌊蒄龖鐯䤰蘓墖靊鈘秐稲晠権袝瑌篅枂稬剏遆㓦珄𥶹瓆鿇垳䤯呌䄱𣚎堘穲𧭥讏䚮"
    "𦺈䆁𥶙箮𢒼鿈𢓁𢓉𢓌鿉蔄𣖻䂴鿊䓡𪷿拁灮鿋 8e69箸 8e6f簆 8e7e糎 8eab緒 8eb4縝 8ecd者 8ed0耨 8f57菁 8f69蒨 "
    "8f6e萏 8fcb覦覩 8ffe起 906d都 907a銹 90dc靜 90f1響 91bf鼖 9244蔃 92af兙兛兝兞 92c8鍮 92d1瑹 9447浧 94ca禛 "
    "95d9邗 9644靝 96ed瀞 96fc嬨 9b76爁 9b78矗 9b7b纇 9bc6駖 9bde釔 9bec惞 9bf6澶 9c42輶 9c53侻 9c62營 9c68鄄 "
    "9c6b鷰 9c77菏 9cbc尐秣 9cd0婧 9d57輋 9d5a筑 9dc4拐 9ea9恢 9eef痹 9efd汊 9f60鬮 9f66鼗 9fcb僭 9fd8弌 a063蠏 "
    "a077拎 a0d5瑨 a0df煢 a0e4牐 a3c0␀␁␂␃␄␅␆␇␈␉␊␋␌␍␎␏␐␑␒␓␔␕␖␗␘␙␚␛␜␝␞␟␡€ c6cf廴 c6d3无 c6d5癶 c6d7隶 "
    "c6de〃仝 fa5f倩 fa66偽 fabd包 fac5卄 fad5卿 fb48嘅 fbb8婷 fbf3幵 fbf9廐 fc4f彘 fc6c悤 fcb9撐 fce2晴 fcf1杞 "
    "fdb7沜渝 fdbb港 fdf1煮 fe52猪 fe6f瑜 feaa瓩 fedd砉"
)


def decode(data: bytes, encoding: str) -> str:
    """The text of ``data``. ``encoding`` is a name of the standard, other than UTF-8."""
    if encoding in _SINGLE:
        return codecs.charmap_decode(data, "replace", _table(encoding))[0]
    if encoding == "big5":
        return _decode_big5(data)
    if encoding == "euc-jp" and b"\x8f\xa2\xb7" in data:
        data = data.replace(b"\x8f\xa2\xb7", b"\xa1\xc1")  # ～ twice; Python reads the first as ASCII's tilde
    if encoding in _DOUBLE:
        return _decode_double(data, encoding)
    if encoding == "iso-2022-jp":
        return _decode_iso_2022_jp(data)
    if encoding == "replacement":
        return _BAD if data else ""
    return data.decode(encoding, "replace")


@cache
def _table(encoding: str) -> str:
    """The characters of the 256 bytes. In Windows encodings, unassigned bytes are C1 controls."""
    table = list(bytes(range(256)).decode(_SINGLE[encoding], "replace").replace(_BAD, _UNDEFINED))
    if encoding.startswith("windows-"):
        for byte in range(0x80, 0xA0):
            if table[byte] == _UNDEFINED:
                table[byte] = chr(byte)
    for byte, character in _DIFFERENT_BYTES.get(encoding, {}).items():
        table[byte] = character
    return "".join(table)


def _decode_double(data: bytes, encoding: str) -> str:
    codec = _DOUBLE[encoding]
    text = data.decode(codec, "replace")
    if 0 < text.count(_BAD) <= MAX_ERRORS:
        text = data.decode(codec, _handler(encoding))
    different = _DIFFERENT.get(encoding)
    if different and any(chr(point) in text for point in different):
        text = text.translate(different)
    return text


# Python decodes A2 41 and A2 42 (∕ and ﹨) to the same characters as A1 FE and A2 40, so these pairs are cut out of the
# bytes first. Any two bytes from 81 to FE are a pair, so a lead byte has an even number of them before it.
_big5_slashes: Final = re.compile(rb"(?<![\x81-\xfe])((?:[\x81-\xfe]{2})*)\xa2([AB])")


def _decode_big5(data: bytes) -> str:
    if not 0 < data.count(b"\xa2A") + data.count(b"\xa2B") <= MAX_ERRORS:
        return _decode_double(data, "big5")
    text = []
    position = 0
    for match in _big5_slashes.finditer(data):
        text.append(_decode_double(data[position : match.end(1)], "big5"))
        text.append("∕" if match[2] == b"A" else "﹨")
        position = match.end()
    return "".join(text) + _decode_double(data[position:], "big5")


@cache
def _handler(encoding: str) -> str:
    """Register the error handler of an encoding. Returns its name."""
    name = f"uttu-{encoding}"
    codecs.register_error(name, partial(_read_one, _READERS[encoding]))
    return name


_Reader = Callable[[bytes, int], tuple[str, int]]


def _read_one(read: _Reader, error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return read(error.object, error.start)


# Readers return the text of the sequence at a position, and the position after it. An invalid trail byte that is ASCII
# does not belong to a bad sequence, other trail bytes do.


def _read_pair(data: bytes, offset: int, pairs: Callable[[int, int], str], leads: tuple[int, int]) -> tuple[str, int]:
    if not leads[0] <= data[offset] <= leads[1] or offset + 1 == len(data):
        return _BAD, offset + 1
    trail = data[offset + 1]
    if character := pairs(data[offset], trail):
        return character, offset + 2
    return _BAD, offset + (1 if trail < 0x80 else 2)


def _read_big5(data: bytes, offset: int) -> tuple[str, int]:
    return _read_pair(data, offset, lambda lead, trail: _big5_missing().get((lead, trail), ""), (0x81, 0xFE))


def _read_euc_kr(data: bytes, offset: int) -> tuple[str, int]:
    return _read_pair(data, offset, lambda _lead, _trail: "", (0x81, 0xFE))


def _read_shift_jis(data: bytes, offset: int) -> tuple[str, int]:
    if 0xA0 <= data[offset] <= 0xDF:
        return _BAD, offset + 1
    return _read_pair(data, offset, lambda _lead, _trail: "", (0x81, 0xFC))


def _read_euc_jp(data: bytes, offset: int) -> tuple[str, int]:
    if data[offset] == 0x8F and offset + 1 < len(data) and 0xA1 <= data[offset + 1] <= 0xFE:
        if offset + 2 == len(data):
            return _BAD, offset + 2
        return _BAD, offset + (2 if data[offset + 2] < 0x80 else 3)
    if data[offset] in (0x8E, 0x8F):
        return _read_pair(data, offset, lambda _lead, _trail: "", (0x8E, 0x8F))
    return _read_pair(data, offset, _jis0208, (0xA1, 0xFE))


def _read_gb18030(data: bytes, offset: int) -> tuple[str, int]:
    if data[offset] == 0x80:
        return "€", offset + 1
    if data[offset] == 0xFF:
        return _BAD, offset + 1
    if offset + 1 < len(data) and 0x30 <= data[offset + 1] <= 0x39:
        rest = data[offset + 2 : offset + 4]
        if (rest and not 0x81 <= rest[0] <= 0xFE) or (len(rest) == 2 and not 0x30 <= rest[1] <= 0x39):
            return _BAD, offset + 1
        return _BAD, min(offset + 4, len(data))
    return _read_pair(data, offset, lambda _lead, _trail: "", (0x81, 0xFE))


_READERS: Final[dict[str, _Reader]] = {
    "gbk": _read_gb18030,
    "gb18030": _read_gb18030,
    "big5": _read_big5,
    "euc-jp": _read_euc_jp,
    "shift_jis": _read_shift_jis,
    "euc-kr": _read_euc_kr,
}


@cache
def _big5_missing() -> dict[tuple[int, int], str]:
    pairs = {}
    # Each run: four hexadecimal digits, then characters for consecutive trail bytes.
    for run in _BIG5_MISSING.split():
        lead, trail = bytes.fromhex(run[:4])
        for character in run[4:]:
            pairs[lead, trail] = character
            trail = 0xA1 if trail == 0x7E else trail + 1
    return pairs


def _jis0208(lead: int, trail: int) -> str:
    """The character of a EUC-JP pair. Shift_JIS has the same rows, with the extensions of NEC and IBM."""
    if not 0xA1 <= trail <= 0xFE:
        return ""
    row, column = divmod((lead - 0xA1) * 94 + trail - 0xA1, 188)
    pair = bytes((row + (0x81 if row < 0x1F else 0xC1), column + (0x40 if column < 0x3F else 0x41)))
    character = pair.decode("cp932", "replace")
    return "" if _BAD in character else character


# ISO-2022-JP: escape sequences switch between four character sets. In each, all bytes but ESC are below 0x80.
_escapes: Final = re.compile(rb"\x1b(\([BJI]|\$[@B])")
_TO_EUC: Final = bytes(byte | 0x80 for byte in range(256))
_ASCII: Final = "".join(_UNDEFINED if byte in (0x0E, 0x0F, 0x1B) or byte > 0x7F else chr(byte) for byte in range(256))
_ISO_2022_JP: Final = {
    b"(B": _ASCII,
    b"(J": _ASCII.translate({0x5C: "¥", 0x7E: "‾"}),
    b"(I": "".join(chr(0xFF40 + byte) if 0x21 <= byte <= 0x5F else _UNDEFINED for byte in range(256)),
}
_jis_pairs: Final = re.compile(rb"[\x21-\x7e][^\x1b]|.", re.DOTALL)
_only_jis_pairs: Final = re.compile(rb"(?:[\x21-\x7e]{2})*+").fullmatch


def _decode_iso_2022_jp(data: bytes) -> str:
    parts = _escapes.split(data, MAX_ERRORS)
    text = [codecs.charmap_decode(parts[0], "replace", _ASCII)[0]]
    for index in range(1, len(parts), 2):
        content = parts[index + 1]
        if not content:
            # Two escapes in a row are an error, unless the second one ends the text.
            text.append(_BAD if index + 2 < len(parts) else "")
        elif table := _ISO_2022_JP.get(parts[index]):
            text.append(codecs.charmap_decode(content, "replace", table)[0])
        else:
            text.append(_decode_jis(content))
    return "".join(text)


def _decode_jis(data: bytes) -> str:
    if _only_jis_pairs(data) or len(data) > MAX_ERRORS:
        return _decode_double(data.translate(_TO_EUC), "euc-jp")
    return "".join(
        _jis0208(pair[0] | 0x80, pair[1] | 0x80) or _BAD if len(pair) == 2 and 0x20 < pair[1] < 0x7F else _BAD
        for pair in _jis_pairs.findall(data)
    )


# Encode, for the queries of links.


def percent_encode(query: str, encoding: str) -> str:
    """A URL's query in the encoding of its page. Bytes that are not ASCII are percent-encoded.

    A character that the encoding lacks becomes ``%26%23N%3B``, the escaped form of ``&#N;``.
    """
    encode = _encode_iso_2022_jp if encoding == "iso-2022-jp" else _encode_characters
    return encode(query, encoding)


def _encode_characters(text: str, encoding: str) -> str:
    encoder = _encoder(encoding)
    pieces = []
    for character in text:
        if character < "\x80":
            pieces.append(character)
        elif character in encoder:
            pieces.append(_escape(encoder[character]))
        elif encoding == "gb18030" and not "\ud800" <= character <= "\udfff" and character != "\ue5e5":
            pieces.append(_escape(character.encode("gb18030")))
        else:
            pieces.append(_numbered(character))
    return "".join(pieces)


def _encode_iso_2022_jp(text: str, encoding: str) -> str:
    encoder = _encoder("euc-jp")
    pieces = []
    state = "(B"
    for character in text.translate(_full_width()):
        pair = encoder.get(character, b"")
        if character in "¥‾" or (state == "(J" and character < "\x80" and character not in "\\~"):
            next_state, code = "(J", {"¥": "\\", "‾": "~"}.get(character, character)
        elif character < "\x80":
            next_state, code = "(B", character
        elif len(pair) == 2 and pair[0] != 0x8E:
            next_state, code = "$B", _escape(bytes(byte & 0x7F for byte in pair))
        else:
            next_state, code = ("(B" if state == "$B" else state), _numbered(character)
        if next_state != state:
            pieces.append("%1B" + next_state)
            state = next_state
        pieces.append(code)
    if state != "(B":
        pieces.append("%1B(B")
    return "".join(pieces)


@cache
def _full_width() -> dict[int, str]:
    """Half-width katakana and the minus sign. ISO-2022-JP writes them as full-width characters."""
    import unicodedata

    kana = {point: unicodedata.normalize("NFKC", chr(point)) for point in range(0xFF61, 0xFF9E)}
    return {**kana, 0xFF9E: "゛", 0xFF9F: "゜", 0x2212: "－"}


def _escape(data: bytes) -> str:
    return "".join(f"%{byte:02X}" if byte > 0x7E or byte < 0x21 or byte in b"\"#<>'" else chr(byte) for byte in data)


def _numbered(character: str) -> str:
    return f"%26%23{ord(character)}%3B"


@cache
def _encoder(encoding: str) -> dict[str, bytes]:
    """The bytes of each non-ASCII character. If several sequences mean the same character, the first one wins."""
    if encoding in _SINGLE:
        return {char: bytes([byte]) for byte, char in reversed(list(enumerate(_table(encoding)))) if char != _UNDEFINED}
    encoder: dict[str, bytes] = {}
    for lead in range(0x81, 0xFF):
        if encoding == "big5" and lead < 0xA1:
            continue  # the extensions of Hong Kong are decoded, but not used for encoding
        for trail in range(0x40, 0xFF):
            pair = bytes((lead, trail))
            character = decode(pair, encoding)
            if len(character) == 1 and character != _BAD and not _is_only_read(encoding, pair):
                encoder.setdefault(character, pair)
    if encoding in ("gbk", "gb18030"):
        # The 2022 edition of GB18030 replaced these characters; the standard still encodes them.
        points = _GB18030.keys() - {0xE5E5, 0xE7C7, 0x1E3F}
        encoder |= {chr(point): chr(point).encode("gb18030") for point in points}
    return encoder | _ENCODED.get(encoding, {})


def _is_only_read(encoding: str, pair: bytes) -> bool:
    # NEC's copy of IBM's extensions, and the private use rows.
    return encoding == "shift_jis" and (0xED <= pair[0] <= 0xEE or 0xF0 <= pair[0] <= 0xF9)


_KATAKANA: Final = range(0xFF61, 0xFFA0)
# Exceptions of the standard's encoders, which are not in the decoder's table.
_ENCODED: Final[dict[str, dict[str, bytes]]] = {
    "gbk": {"€": b"\x80"},
    "gb18030": {"\ue7c7": b"\x81\x35\xf4\x37"},
    "shift_jis": {
        **{chr(point): bytes([point - 0xFEC0]) for point in _KATAKANA},
        "\x80": b"\x80",
        "¥": b"\\",
        "‾": b"~",
        "−": b"\x81\x7c",
    },
    "euc-jp": {
        **{chr(point): bytes((0x8E, point - 0xFEC0)) for point in _KATAKANA},
        "¥": b"\\",
        "‾": b"~",
        "−": b"\xa1\xdd",
    },
    "big5": {"═": b"\xf9\xf9", "╞": b"\xf9\xe9", "╡": b"\xf9\xeb", "╪": b"\xf9\xea", "十": b"\xa4Q", "卅": b"\xa4\xca"},
}
