from __future__ import annotations

import hpack as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu.fetch.http2_frames import TABLE_SIZE, HeaderField, HpackDecoder, InvalidHeaderBlock, encode_field

names = st.sampled_from([b":status", b"date", b"set-cookie", b"x-own", b"content-type"]) | st.binary(max_size=20)
fields = st.lists(st.tuples(names, st.sampled_from([b"", b"200", b"text/html"]) | st.binary(max_size=80)), max_size=12)


@given(st.lists(st.tuples(fields, st.booleans()), max_size=12))
def test_blocks_of_another_encoder(blocks: list[tuple[list[HeaderField], bool]]) -> None:
    encoder, decoder = reference.Encoder(), HpackDecoder(100_000)
    for block, is_packed in blocks:
        assert decoder.decode(encoder.encode(block, huffman=is_packed)) == block


@given(fields)
def test_blocks_for_another_decoder(block: list[HeaderField]) -> None:
    sent = b"".join(encode_field(name, value) for name, value in block)
    assert [tuple(pair) for pair in reference.Decoder().decode(sent, raw=True)] == block


@given(st.binary(max_size=100))
def test_anything_is_read_or_refused(data: bytes) -> None:
    decoder = HpackDecoder(1000)
    for _ in range(2):
        try:
            found = decoder.decode(data)
        except InvalidHeaderBlock:
            continue
        assert sum(len(name) + len(value) + 32 for name, value in found) <= 1000


def test_every_byte_has_its_code() -> None:
    everything = bytes(range(256))
    sent = reference.Encoder().encode([(b"x", everything)], huffman=True)
    assert HpackDecoder(1000).decode(sent) == [(b"x", everything)]


def test_a_small_block_that_repeats_a_long_field() -> None:
    long = b"\x40\x01x" + b"\x7f\x81\x1e" + b"v" * 3968  # kept by the decoder
    assert len(HpackDecoder(10_000).decode(long)) == 1
    with pytest.raises(InvalidHeaderBlock, match="longer than 10000 bytes"):
        HpackDecoder(10_000).decode(long + b"\xbe" * 1000)


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # field 0
        b"\xbe",  # the first of the dynamic table, which is empty
        b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a number without end
        b"\x3f\xe2\x1f",  # a table of more than was offered
        b"\x82\x20",  # a change of the table within a block
        b"\x00\x01x\x05ab",  # a string that is cut
        b"\x00\x01x\x84\xff\xff\xff\xff",  # the end of the text, as a symbol
        b"\x00\x01x\x81\x00",  # padding that is not all ones
        b"\x00\x01x\x82\x07\xff",  # padding of more than seven bits
    ],
)
def test_invalid_header_blocks(block: bytes) -> None:
    with pytest.raises(InvalidHeaderBlock):
        HpackDecoder(1000).decode(block)


def test_hpack_table_evicts_fields() -> None:
    encoder, decoder = reference.Encoder(), HpackDecoder(1_000_000)
    for number in range(300):
        block = [(b"x-%d" % (number % 70), b"v" * (number * 37 % TABLE_SIZE))]
        assert decoder.decode(encoder.encode(block)) == block
    encoder.header_table_size = 100
    block = [(b"x-small", b"1"), (b"x-large", b"v" * 200)]
    for _ in range(3):
        assert decoder.decode(encoder.encode(block)) == block
