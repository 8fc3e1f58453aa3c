"""An item as a row: what the formats with columns share."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from weft.errors import SinkError
from weft.frontier.base import StoredItem

VALUE: Final = "value"
"""The column of an item that is not an object."""

MAX_COLUMNS: Final = 2000
"""SQLite's own limit, kept for all: so many columns mean that keys hold data."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def line(item: StoredItem) -> bytes:
    """The item as one line. A line feed in JSON can only be white space between tokens."""
    return item.json.replace(b"\n", b" ") + b"\n"


def row(item: StoredItem) -> dict[str, Any]:
    """The item's fields; a list, a string or a number is a row with the one column ``value``."""
    try:
        return parse(item.json)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SinkError(f"item {item.id} is not readable JSON: {error}") from error


def parse(json: bytes) -> dict[str, Any]:
    """The row of a JSON document."""
    value = _decode(json)
    return value if isinstance(value, dict) else {VALUE: value}


def text(value: Any) -> str:
    """A value as text: strings as they are, all else as JSON."""
    return value if isinstance(value, str) else json(value)


def json(value: Any) -> str:
    """A value as JSON text."""
    return _encode(value).decode()


def too_many_columns(target: object) -> SinkError:
    return SinkError(
        f"can't write {target}: the items have more than {MAX_COLUMNS} different keys, too many for columns; "
        "put what varies into a value, or write JSON Lines (.jsonl). Nothing is lost: items wait in the crawl's store"
    )
