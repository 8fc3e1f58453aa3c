"""Names of topics and groups, patterns of topics, and topics in addresses.

A topic consists of words of letters, digits, ``_`` and ``-``, separated by dots: ``news.de.sport``. RabbitMQ, Kafka and
Redis accept such names unchanged. In a pattern ``*`` stands for one word and ``#`` for zero or more words:
``news.*.sport``, ``news.#``. The address of a topic is the broker's URL with the option ``topic=``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

import xxhash

_LONGEST: Final = 200  # characters; Kafka's limit is 249, and the topic of a group's dead letters has a suffix
_LONGEST_NAME: Final = 150  # characters of to_word(); leaves room for other words in the topic
_WORD: Final = r"[A-Za-z0-9_-]+"
_match_topic: Final = re.compile(rf"{_WORD}(?:\.{_WORD})*").fullmatch
_find_repeated_any: Final = re.compile(r"#(?:\.#)+")
_find_invalid: Final = re.compile(r"[^A-Za-z0-9_-]")
_match_pattern: Final = re.compile(rf"(?:{_WORD}|\*|#)(?:\.(?:{_WORD}|\*|#))*").fullmatch


def check_topic(topic: str) -> None:
    """:raises ValueError: ``topic`` is not a valid name of a topic."""
    if not _match_topic(topic) or len(topic) > _LONGEST:
        raise ValueError(f"{topic!r:.80} is not a topic. Write words of letters, digits, _ and -, separated by dots")


def check_pattern(pattern: str) -> None:
    """:raises ValueError: ``pattern`` is neither a topic nor a pattern of topics."""
    if not _match_pattern(pattern) or len(pattern) > _LONGEST:
        raise ValueError(
            f"{pattern!r:.80} is not a topic or a pattern of topics. Write words separated by dots, "
            "* for one word, # for any number of words"
        )


def check_group(group: str) -> None:
    """:raises ValueError: ``group`` is not a valid name of a group."""
    if not _match_topic(group) or len(group) > _LONGEST:
        raise ValueError(f"{group!r:.80} is not the name of a group. Write words of letters, digits, _, - and dots")


def to_word(name: str) -> str:
    """Convert any name, for example a crawl's, to one word of a topic.

    Invalid characters become ``-`` and long names are cut. A name that is changed in this way gets a hash of the
    original as a suffix, so that different names stay different.
    """
    if name and len(name) <= _LONGEST_NAME and not _find_invalid.search(name):
        return name
    digest = xxhash.xxh3_64_hexdigest(name.encode(errors="surrogatepass"))[:8]
    return f"{_find_invalid.sub('-', name)[: _LONGEST_NAME - 9]}-{digest}"


def is_pattern(pattern: str) -> bool:
    """Return whether ``pattern`` contains a wildcard."""
    return "*" in pattern or "#" in pattern


def to_regex(pattern: str) -> str:
    """Return a regular expression that matches the same topics as a whole.

    It uses only syntax that Python and librdkafka share, because Kafka consumers subscribe with it.
    """
    # If "#" stands for zero words, one of the dots beside it must go, too: the dot before a last "#", else the dot
    # after it.
    words = _find_repeated_any.sub("#", pattern).split(".")
    text = ""
    for index, word in enumerate(words):
        last = index == len(words) - 1
        if word == "#":
            if last:
                text = (text.removesuffix(r"\.") + rf"(\.{_WORD})*") if text else rf"{_WORD}(\.{_WORD})*"
            else:
                text += rf"({_WORD}\.)*"
        else:
            text += (_WORD if word == "*" else word) + ("" if last else r"\.")
    return f"^{text}$"


@lru_cache(maxsize=1024)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    return re.compile("|".join(to_regex(pattern) for pattern in patterns)).match


def matches(patterns: Iterable[str], topic: str) -> bool:
    """Return whether one of the patterns matches the topic."""
    return _matcher(tuple(patterns))(topic) is not None


_find_topic_option: Final = re.compile(r"(?<=[?&])topic=([^&]*)(?:&|$)").search


def split_topic(address: str, default: str) -> tuple[str, str]:
    """Split an address into the broker's URL and the value of its option ``topic``.

    :param default: the topic if the option is missing.
    :raises ValueError: the option is not a valid name of a topic.
    """
    match = _find_topic_option(address)
    if match is None:
        return address, default
    topic = unquote(match[1])
    check_topic(topic)
    url = address[: match.start()] + address[match.end() :]
    return url.rstrip("?&"), topic
