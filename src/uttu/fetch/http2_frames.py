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
FRAME_BUDGET: Final = 128 * 1024
_MAX_BUDGET: Final = 1024 * 1024
# Header blocks have their own limit, so only a quarter of their size counts: many are an attack, a long one is not.
_HEADER_KINDS: Final = frozenset({HEADERS, CONTINUATION})
_HEADER_SHARE: Final = 4
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
        self._has_settings = False  # the host's SETTINGS frame came
        self._block: list[bytes] = []  # of a header block that goes on in the next frame
        self._block_size = 0
        self._block_flags = 0
        self._block_stream = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that ``data`` completes, read one by one: stop after a frame that ends the connection.

        :raises InvalidResponse: the connection can't be used any more.
        """
        if self._buffer:
            data = self._buffer + data
        at, end = 0, len(data)
        while end - at >= 9:
            size = int.from_bytes(data[at : at + 3], "big")
            if size > FRAME_SIZE:
                raise InvalidResponse("a frame is too large")
            begin = at + 9
            if begin + size > end:
                break
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : begin], "big") & LAST_ID
            at = begin + size
            if self._block and (kind != CONTINUATION or stream != self._block_stream):
                raise InvalidResponse("its headers are interrupted by another frame")
            if not self._has_settings:
                if kind != SETTINGS or flags & ACK:
                    raise InvalidResponse("it does not begin with its settings")
                self._has_settings = True
            is_header = kind in _HEADER_KINDS
            budget = self.budget - 9 - (0 if kind == DATA else size // _HEADER_SHARE if is_header else size)
            if budget < 0:
                raise InvalidResponse("it sends frame after frame, and nothing in them")
            if kind == DATA:
                budget += 2 * size - (3 * (data[begin] + 1) if flags & PADDED and size else 0)
                self.budget = budget if budget < _MAX_BUDGET else _MAX_BUDGET
                yield kind, flags, stream, data[begin:at]
                continue
            self.budget = budget
            if not is_header or (kind == HEADERS and flags & _BLOCK_FLAGS == END_HEADERS):  # mostly
                yield kind, flags, stream, data[begin:at]
            elif self._add_to_block(kind, flags, stream, data[begin:at]):
                block, self._block = b"".join(self._block), []
                yield HEADERS, self._block_flags, stream, block
        self._buffer = data[at:]

    def _add_to_block(self, kind: int, flags: int, stream: int, payload: bytes) -> bool:
        """Whether the header block is complete."""
        if kind == HEADERS:
            if flags & PADDED:
                payload = strip_padding(payload)
            if flags & PRIORITIZED:
                payload = payload[5:]
            self._block, self._block_size = [payload], len(payload)
            self._block_flags, self._block_stream = flags, stream
        else:
            if not self._block:
                raise InvalidResponse("it goes on with headers that have ended")
            self._block.append(payload)
            self._block_size += len(payload)
            if self._block_size > HEAD_LIMIT or len(self._block) > _MAX_CONTINUATIONS:
                raise InvalidResponse(f"its head is longer than {HEAD_LIMIT} bytes")
        return bool(flags & END_HEADERS)


def strip_padding(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise InvalidResponse("its padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]


HeaderField = tuple[bytes, bytes]

TABLE_SIZE: Final = 4096
_FIELD_OVERHEAD: Final = 32
_MOST_SHIFTS: Final = 28  # an integer of more than five bytes is an attack

# Appendix A; an underscore stands for a space.
_STATIC_TEXT: Final = """
:authority :method=GET :method=POST :path=/ :path=/index.html :scheme=http :scheme=https :status=200 :status=204
:status=206 :status=304 :status=400 :status=404 :status=500 accept-charset accept-encoding=gzip,_deflate
accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control
content-disposition content-encoding content-language content-length content-location content-range content-type
cookie date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
last-modified link location max-forwards proxy-authenticate proxy-authorization range referer refresh
retry-after server set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate
"""
# Appendix B: the length of each symbol's code, which determines all codes. "28*7": seven symbols of that length.
_LENGTHS: Final = (
    "13 23 28*7 24 30 28*2 30 28*8 30 28*9 6 10*2 12 13 6 8 11 10*2 8 11 8 6*3 5*3 6*7 7 8 15 6 12 10 13 6 7*22 8 "
    "7 8 13 19 13 14 6 15 5 6 5 6 5 6*3 5 7*2 6*3 5 6 7 6 5*2 6 7*5 15 11 14 13 28 20 22 20*2 22*3 23 22 23*5 24 "
    "23 24*2 22 23 24 23*4 21 22 23 22 23*2 24 22 21 20 22*2 23*2 21 23 22*2 24 21 22 23*2 21*2 22 21 23 22 23*2 "
    "20 22*3 23 22*2 23 26*2 20 19 22 23 22 25 26*3 27*2 26 24 25 19 21 26 27*2 26 27 24 21*2 26*2 28 27*3 20 24 "
    "20 21 22 21*2 23 22*2 25*2 24*2 26 23 26 27 26*2 27*5 28 27*5 26 30 "
)
_END: Final = 256


def _static() -> tuple[HeaderField, ...]:
    fields = (field.partition("=") for field in _STATIC_TEXT.split())
    return tuple((name.encode(), value.replace("_", " ").encode()) for name, _, value in fields)


_STATIC: Final = _static()


class InvalidHeaderBlock(Exception):
    """The bytes are no block of headers, or one that is too large; says why."""


class HpackDecoder:
    """Decodes the blocks of one connection, in order."""

    def __init__(self, limit: int) -> None:
        """``limit``: the most that a block may have, by the standard's count."""
        self._limit = limit
        self._table: deque[HeaderField] = deque()
        self._size = 0
        self._most = TABLE_SIZE

    def decode(self, block: bytes) -> list[HeaderField]:
        """:raises InvalidHeaderBlock: see there. The connection can't be used any more."""
        fields: list[HeaderField] = []
        room = self._limit
        at, end = 0, len(block)
        try:
            while at < end:
                first = block[at]
                if first & 0x80:
                    index, at = _decode_integer(block, at, 0x7F)
                    field = self._field(index)
                elif first & 0xE0 == 0x20:
                    size, at = _decode_integer(block, at, 0x1F)
                    if fields or size > TABLE_SIZE:
                        raise InvalidHeaderBlock("it changes its table to a size that was not offered, or too late")
                    self._most = size
                    self._evict()
                    room -= 1  # there may be many
                    continue
                else:
                    is_kept = first & 0x40
                    index, at = _decode_integer(block, at, 0x3F if is_kept else 0x0F)
                    if index:
                        name = self._field(index)[0]
                    else:
                        name, at = _decode_string(block, at)
                    value, at = _decode_string(block, at)
                    field = (name, value)
                    if is_kept:
                        self._keep(field)
                room -= len(field[0]) + len(field[1]) + _FIELD_OVERHEAD
                if room < 0:
                    raise InvalidHeaderBlock(f"its headers are longer than {self._limit} bytes")
                fields.append(field)
        except IndexError:
            raise InvalidHeaderBlock("its headers are cut, or name a field that does not exist") from None
        return fields

    def _field(self, index: int) -> HeaderField:
        if index > len(_STATIC):
            return self._table[index - len(_STATIC) - 1]
        if not index:
            raise IndexError
        return _STATIC[index - 1]

    def _keep(self, field: HeaderField) -> None:
        self._table.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + _FIELD_OVERHEAD
        self._evict()

    def _evict(self) -> None:
        while self._size > self._most:
            name, value = self._table.pop()
            self._size -= len(name) + len(value) + _FIELD_OVERHEAD


def _decode_integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _MOST_SHIFTS:
            raise InvalidHeaderBlock("it has a number that is too long")


def _decode_string(block: bytes, at: int) -> tuple[bytes, int]:
    is_packed = block[at] & 0x80
    length, at = _decode_integer(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise IndexError
    text = block[at:end]
    if is_packed:
        text = _unpack_known(text) if length < 100 else _unpack(text)
    return text, end


def _unpack(text: bytes) -> bytes:
    """Undo the Huffman code, four bits at a time."""
    table = _transitions()
    state = 0
    out = bytearray()
    for byte in text:
        state, symbol = table[state << 4 | byte >> 4]
        if symbol >= 0:
            out.append(symbol)
        state, symbol = table[state << 4 | byte & 15]
        if symbol >= 0:
            out.append(symbol)
    if state not in _endings():
        raise InvalidHeaderBlock("its Huffman code is not valid")
    return bytes(out)


_unpack_known: Final = lru_cache(maxsize=2048)(_unpack)


@cache
def _tree() -> tuple[list[list[int]], list[int]]:
    """The codes as a tree: nodes of two branches, each a node's number or -1 - symbol; and the path of all ones."""
    lengths: list[int] = []
    for run in _LENGTHS.split():
        length, _, count = run.partition("*")
        lengths += [int(length)] * int(count or 1)
    nodes: list[list[int]] = [[0, 0]]
    code = before = 0
    for size, symbol in sorted((size, symbol) for symbol, size in enumerate(lengths)):
        code <<= size - before
        before = size
        node = 0
        for bit in range(size - 1, 0, -1):
            branch = code >> bit & 1
            if not nodes[node][branch]:
                nodes.append([0, 0])
                nodes[node][branch] = len(nodes) - 1
            node = nodes[node][branch]
        nodes[node][code & 1] = -1 - symbol
        code += 1
    ones = [0]
    while len(ones) < 8:
        ones.append(nodes[ones[-1]][1])
    return nodes, ones


@cache
def _endings() -> frozenset[int]:
    """The nodes where a text may end: at most seven bits are left over, and all are ones."""
    return frozenset(_tree()[1])


@cache
def _transitions() -> list[tuple[int, int]]:
    """For each node and four bits: the next node, and the symbol that was completed on the way, or -1.

    A text may not contain the code of its end: from there, the way leads to a last node that nothing leaves.
    """
    nodes, _ = _tree()
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
                        if symbol == _END:
                            symbol, node = -1, invalid
            table.append((node, symbol))
    return table + [(invalid, -1)] * 16


_INDEX: Final = {field: number for number, field in enumerate(_STATIC, 1) if field[1]}
_NAMES: Final = {name: number for number, (name, _) in reversed(list(enumerate(_STATIC, 1)))}


@lru_cache(maxsize=1024)
def encode_field(name: bytes, value: bytes) -> bytes:
    """One field, without Huffman code, and not to be kept by the other side."""
    if (index := _INDEX.get((name, value))) is not None:
        return bytes((0x80 | index,))
    if (index := _NAMES.get(name)) is not None:
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
