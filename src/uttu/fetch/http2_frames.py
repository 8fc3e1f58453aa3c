"""HTTP/2 on the wire, without I/O: frames (RFC 9113) and header blocks (HPACK, RFC 7541).

A budget bounds what a host can do to keep us busy without sending anything: each frame costs its overhead, each byte of
a body earns two, each new request fills the budget up (``FRAME_BUDGET``). Empty frames, pings, settings, resets,
interim responses (1xx) and padding without end use it up, and the connection ends. A header block has at most
``HEAD_LIMIT`` bytes, before and after decompression, and at most ``_MAX_CONTINUATIONS`` frames.

Decoding of header blocks follows the whole standard: both tables, Huffman codes, size updates. What a block may cost is
bounded: the decoded size counts as the standard counts it (32 bytes for each field beside its text), so a small block
that repeats one long field ends at the limit. Encoding uses the static table only, and so has no state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from functools import cache, lru_cache
from typing import Final

from uttu.fetch.http1_parser import HEAD_LIMIT, InvalidResponse

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITIZED = 0x4, 0x8, 0x20


class Setting(IntEnum):
    """Names of settings (RFC 9113, section 6.5.2) that are sent or read here."""

    ENABLE_PUSH = 2
    MAX_STREAMS = 3
    INITIAL_WINDOW = 4
    MAX_HEADERS = 6


class ErrorCode(IntEnum):
    """Why a stream or a connection ends (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


def describe_error_code(code: int) -> str:
    return ErrorCode(code).name if code < len(ErrorCode) else f"error {code}"


FRAME_SIZE: Final = 16_384  # maximum payload of a frame, in both directions; no SETTINGS_MAX_FRAME_SIZE is sent
LAST_ID: Final = 2**31 - 1
STREAM_WINDOW: Final = 1024 * 1024
CONNECTION_WINDOW: Final = 16 * 1024 * 1024
MAX_WINDOW: Final = 2**31 - 1
FRAME_BUDGET: Final = 128 * 1024
_MAX_BUDGET: Final = 1024 * 1024
# Header blocks have their own limit, so only 1/_HEADER_DISCOUNT of their size counts: many blocks are an attack, a long
# one is not.
_HEADER_KINDS: Final = frozenset({HEADERS, CONTINUATION})
_HEADER_DISCOUNT: Final = 4
_BLOCK_FLAGS: Final = END_HEADERS | PADDED | PRIORITIZED
_MAX_CONTINUATIONS: Final = 64

Frame = tuple[int, int, int, bytes]
"""Kind, flags, stream, payload."""


def encode_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def encode_header_frames(stream: int, block: bytes, *, end_stream: bool) -> bytes:
    """A header block as one HEADERS frame and as many CONTINUATION frames as it needs."""
    kind, end = HEADERS, END_STREAM if end_stream else 0
    out = []
    while True:
        piece, block = block[:FRAME_SIZE], block[FRAME_SIZE:]
        out.append(encode_frame(kind, end | (0 if block else END_HEADERS), stream, piece))
        kind, end = CONTINUATION, 0
        if not block:
            return b"".join(out)


_SETTINGS: Final = (
    (Setting.ENABLE_PUSH, 0),
    (Setting.INITIAL_WINDOW, STREAM_WINDOW),
    (Setting.MAX_HEADERS, HEAD_LIMIT),
)
CLIENT_PREFACE: Final = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + encode_frame(
        SETTINGS, 0, 0, b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in _SETTINGS)
    )
    + encode_frame(WINDOW_UPDATE, 0, 0, (CONNECTION_WINDOW - 65_535).to_bytes(4, "big"))
)


class FrameReader:
    """Splits what a host sends into frames; header blocks come out whole, as one HEADERS frame without padding.

    ``budget`` is what the host may still cost; each request raises it to ``FRAME_BUDGET`` again.
    """

    __slots__ = ("_block", "_block_flags", "_block_size", "_block_stream", "_buffer", "_has_settings", "budget")

    def __init__(self) -> None:
        self.budget = FRAME_BUDGET
        self._buffer = b""
        self._has_settings = False  # whether the host's SETTINGS frame has arrived
        self._block: list[bytes] = []  # pieces of a header block that continues in the next frame
        self._block_size = 0
        self._block_flags = 0
        self._block_stream = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that ``data`` completes, read one by one: stop after a frame that ends the connection.

        :raises InvalidResponse: a frame is not valid. The connection cannot be used any more.
        """
        if self._buffer:
            data = self._buffer + data
        offset, end = 0, len(data)
        while end - offset >= 9:
            size = int.from_bytes(data[offset : offset + 3], "big")
            if size > FRAME_SIZE:
                raise InvalidResponse(f"frame larger than {FRAME_SIZE} bytes")
            payload_start = offset + 9
            if payload_start + size > end:
                break
            kind, flags = data[offset + 3], data[offset + 4]
            stream = int.from_bytes(data[offset + 5 : payload_start], "big") & LAST_ID
            offset = payload_start + size
            if self._block and (kind != CONTINUATION or stream != self._block_stream):
                raise InvalidResponse("other frame within a header block")
            if not self._has_settings:
                if kind != SETTINGS or flags & ACK:
                    raise InvalidResponse("first frame is not SETTINGS")
                self._has_settings = True
            is_header = kind in _HEADER_KINDS
            budget = self.budget - 9 - (0 if kind == DATA else size // _HEADER_DISCOUNT if is_header else size)
            if budget < 0:
                raise InvalidResponse("too many frames without data")
            if kind == DATA:
                budget += 2 * size - (3 * (data[payload_start] + 1) if flags & PADDED and size else 0)
                self.budget = budget if budget < _MAX_BUDGET else _MAX_BUDGET
                yield kind, flags, stream, data[payload_start:offset]
                continue
            self.budget = budget
            if not is_header or (kind == HEADERS and flags & _BLOCK_FLAGS == END_HEADERS):  # mostly
                yield kind, flags, stream, data[payload_start:offset]
            elif self._add_to_block(kind, flags, stream, data[payload_start:offset]):
                block, self._block = b"".join(self._block), []
                yield HEADERS, self._block_flags, stream, block
        self._buffer = data[offset:]

    def _add_to_block(self, kind: int, flags: int, stream: int, payload: bytes) -> bool:
        """Add the payload of a HEADERS or CONTINUATION frame. Returns whether the header block is complete."""
        if kind == HEADERS:
            if flags & PADDED:
                payload = strip_padding(payload)
            if flags & PRIORITIZED:
                payload = payload[5:]
            self._block, self._block_size = [payload], len(payload)
            self._block_flags, self._block_stream = flags, stream
        else:
            if not self._block:
                raise InvalidResponse("CONTINUATION frame without HEADERS")
            self._block.append(payload)
            self._block_size += len(payload)
            if self._block_size > HEAD_LIMIT or len(self._block) > _MAX_CONTINUATIONS:
                raise InvalidResponse(f"head longer than {HEAD_LIMIT} bytes")
        return bool(flags & END_HEADERS)


def strip_padding(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise InvalidResponse("padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]


HeaderField = tuple[bytes, bytes]

TABLE_SIZE: Final = 4096
_FIELD_OVERHEAD: Final = 32
_MAX_SHIFT: Final = 28  # an integer of more than five bytes is an attack

# Appendix A; an underscore stands for a space.
_STATIC_TABLE_TEXT: Final = """
:authority :method=GET :method=POST :path=/ :path=/index.html :scheme=http :scheme=https :status=200 :status=204
:status=206 :status=304 :status=400 :status=404 :status=500 accept-charset accept-encoding=gzip,_deflate
accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control
content-disposition content-encoding content-language content-length content-location content-range content-type
cookie date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
last-modified link location max-forwards proxy-authenticate proxy-authorization range referer refresh
retry-after server set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate
"""
# Appendix B: the length of each symbol's code, which determines all codes. "28*7": seven symbols of that length.
_HUFFMAN_LENGTHS: Final = (
    "13 23 28*7 24 30 28*2 30 28*8 30 28*9 6 10*2 12 13 6 8 11 10*2 8 11 8 6*3 5*3 6*7 7 8 15 6 12 10 13 6 7*22 8 "
    "7 8 13 19 13 14 6 15 5 6 5 6 5 6*3 5 7*2 6*3 5 6 7 6 5*2 6 7*5 15 11 14 13 28 20 22 20*2 22*3 23 22 23*5 24 "
    "23 24*2 22 23 24 23*4 21 22 23 22 23*2 24 22 21 20 22*2 23*2 21 23 22*2 24 21 22 23*2 21*2 22 21 23 22 23*2 "
    "20 22*3 23 22*2 23 26*2 20 19 22 23 22 25 26*3 27*2 26 24 25 19 21 26 27*2 26 27 24 21*2 26*2 28 27*3 20 24 "
    "20 21 22 21*2 23 22*2 25*2 24*2 26 23 26 27 26*2 27*5 28 27*5 26 30 "
)
_END_OF_STRING: Final = 256


def _parse_static_table() -> tuple[HeaderField, ...]:
    fields = (field.partition("=") for field in _STATIC_TABLE_TEXT.split())
    return tuple((name.encode(), value.replace("_", " ").encode()) for name, _, value in fields)


_STATIC_TABLE: Final = _parse_static_table()


class InvalidHeaderBlock(Exception):
    """The bytes are not a valid header block, or it is too large. The message says why."""


class HpackDecoder:
    """Decodes the header blocks of one connection, in order.

    :param limit: maximum size of a decoded block, by the standard's count.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._table: deque[HeaderField] = deque()
        self._size = 0
        self._max_size = TABLE_SIZE

    def decode(self, block: bytes) -> list[HeaderField]:
        """The fields of a block.

        :raises InvalidHeaderBlock: the block is not valid. The connection cannot be used any more.
        """
        fields: list[HeaderField] = []
        remaining = self._limit
        offset, end = 0, len(block)
        try:
            while offset < end:
                first = block[offset]
                if first & 0x80:
                    index, offset = _decode_integer(block, offset, 0x7F)
                    field = self._get_field(index)
                elif first & 0xE0 == 0x20:
                    size, offset = _decode_integer(block, offset, 0x1F)
                    if fields or size > TABLE_SIZE:
                        raise InvalidHeaderBlock("invalid size update of the header table")
                    self._max_size = size
                    self._evict()
                    remaining -= 1  # bounds the number of size updates
                    continue
                else:
                    is_indexed = first & 0x40
                    index, offset = _decode_integer(block, offset, 0x3F if is_indexed else 0x0F)
                    if index:
                        name = self._get_field(index)[0]
                    else:
                        name, offset = _decode_string(block, offset)
                    value, offset = _decode_string(block, offset)
                    field = (name, value)
                    if is_indexed:
                        self._add(field)
                remaining -= len(field[0]) + len(field[1]) + _FIELD_OVERHEAD
                if remaining < 0:
                    raise InvalidHeaderBlock(f"headers longer than {self._limit} bytes")
                fields.append(field)
        except IndexError:
            raise InvalidHeaderBlock("header block truncated, or index out of range") from None
        return fields

    def _get_field(self, index: int) -> HeaderField:
        if index > len(_STATIC_TABLE):
            return self._table[index - len(_STATIC_TABLE) - 1]
        if not index:
            raise IndexError
        return _STATIC_TABLE[index - 1]

    def _add(self, field: HeaderField) -> None:
        self._table.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + _FIELD_OVERHEAD
        self._evict()

    def _evict(self) -> None:
        while self._size > self._max_size:
            name, value = self._table.pop()
            self._size -= len(name) + len(value) + _FIELD_OVERHEAD


def _decode_integer(block: bytes, offset: int, mask: int) -> tuple[int, int]:
    value = block[offset] & mask
    offset += 1
    if value < mask:
        return value, offset
    shift = 0
    while True:
        byte = block[offset]
        offset += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
        if shift > _MAX_SHIFT:
            raise InvalidHeaderBlock("integer too long")


def _decode_string(block: bytes, offset: int) -> tuple[bytes, int]:
    is_huffman = block[offset] & 0x80
    length, offset = _decode_integer(block, offset, 0x7F)
    end = offset + length
    if end > len(block):
        raise IndexError
    text = block[offset:end]
    if is_huffman:
        text = _decode_huffman_cached(text) if length < 100 else _decode_huffman(text)
    return text, end


def _decode_huffman(text: bytes) -> bytes:
    """Decode a Huffman-coded string, four bits at a time."""
    table = _build_huffman_table()
    state = 0
    out = bytearray()
    for byte in text:
        state, symbol = table[state << 4 | byte >> 4]
        if symbol >= 0:
            out.append(symbol)
        state, symbol = table[state << 4 | byte & 15]
        if symbol >= 0:
            out.append(symbol)
    if state not in _find_final_states():
        raise InvalidHeaderBlock("invalid Huffman code")
    return bytes(out)


_decode_huffman_cached: Final = lru_cache(maxsize=2048)(_decode_huffman)


@cache
def _build_huffman_tree() -> tuple[list[list[int]], list[int]]:
    """The codes as a tree: nodes of two branches, each a node's number or -1 - symbol; and the path of all ones."""
    lengths: list[int] = []
    for run in _HUFFMAN_LENGTHS.split():
        length, _, count = run.partition("*")
        lengths += [int(length)] * int(count or 1)
    nodes: list[list[int]] = [[0, 0]]
    code = previous_size = 0
    for size, symbol in sorted((size, symbol) for symbol, size in enumerate(lengths)):
        code <<= size - previous_size
        previous_size = size
        node = 0
        for bit in range(size - 1, 0, -1):
            branch = code >> bit & 1
            if not nodes[node][branch]:
                nodes.append([0, 0])
                nodes[node][branch] = len(nodes) - 1
            node = nodes[node][branch]
        nodes[node][code & 1] = -1 - symbol
        code += 1
    all_ones = [0]
    while len(all_ones) < 8:
        all_ones.append(nodes[all_ones[-1]][1])
    return nodes, all_ones


@cache
def _find_final_states() -> frozenset[int]:
    """The nodes where a string may end: the padding has at most seven bits, and all are ones."""
    return frozenset(_build_huffman_tree()[1])


@cache
def _build_huffman_table() -> list[tuple[int, int]]:
    """For each node and four bits: the next node, and the symbol that was completed on the way, or -1.

    A string must not contain the code of ``_END_OF_STRING``: that leads to an invalid node, which has no way out.
    """
    nodes, _ = _build_huffman_tree()
    invalid = len(nodes)
    table: list[tuple[int, int]] = []
    for start in range(len(nodes)):
        for bits in range(16):
            node, symbol = start, -1
            for bit in (3, 2, 1, 0):
                if node != invalid:
                    node = nodes[node][bits >> bit & 1]
                    if node < 0:
                        symbol, node = -1 - node, 0
                        if symbol == _END_OF_STRING:
                            symbol, node = -1, invalid
            table.append((node, symbol))
    return table + [(invalid, -1)] * 16


_FIELD_INDEX: Final = {field: number for number, field in enumerate(_STATIC_TABLE, 1) if field[1]}
_NAME_INDEX: Final = {name: number for number, (name, _) in reversed(list(enumerate(_STATIC_TABLE, 1)))}


@lru_cache(maxsize=1024)
def encode_field(name: bytes, value: bytes) -> bytes:
    """One field, without Huffman code, and without adding it to the other side's table."""
    if (index := _FIELD_INDEX.get((name, value))) is not None:
        return bytes((0x80 | index,))
    if (index := _NAME_INDEX.get(name)) is not None:
        return _encode_integer(index, 0x0F, 0) + _encode_integer(len(value), 0x7F, 0) + value
    return b"\0" + _encode_integer(len(name), 0x7F, 0) + name + _encode_integer(len(value), 0x7F, 0) + value


def _encode_integer(number: int, mask: int, flags: int) -> bytes:
    if number < mask:
        return bytes((flags | number,))
    out = bytearray((flags | mask,))
    number -= mask
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
