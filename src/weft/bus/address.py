"""Addresses of a topic on a broker: the broker's own URL, and ``topic=`` among its options."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from weft.bus.topics import check_topic

_topic: Final = re.compile(r"(?<=[?&])topic=([^&]*)(?:&|$)").search


def split_topic(address: str, default: str) -> tuple[str, str]:
    """The broker's URL and the topic, or ``default`` where none is named.

    :raises ValueError: what it names is not a topic.
    """
    found = _topic(address)
    if found is None:
        return address, default
    topic = unquote(found[1])
    check_topic(topic)
    url = address[: found.start()] + address[found.end() :]
    return url.rstrip("?&"), topic
