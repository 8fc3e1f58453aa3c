"""The names of topics and groups, and what patterns match.

Words are letters, digits, ``_`` and ``-``, with dots between them: what RabbitMQ, Kafka and Redis all take as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import xxhash

_LONGEST: Final = 200  # Kafka's limit is 249, and dead letters need a few more
_LONGEST_NAME: Final = 150  # which leaves room for the words around it
_WORD: Final = r"[A-Za-z0-9_-]+"
_topic: Final = re.compile(rf"{_WORD}(?:\.{_WORD})*").fullmatch
_repeated_any: Final = re.compile(r"#(?:\.#)+")
_foreign: Final = re.compile(r"[^A-Za-z0-9_-]")
_pattern: Final = re.compile(rf"(?:{_WORD}|\*|#)(?:\.(?:{_WORD}|\*|#))*").fullmatch


def check_topic(topic: str) -> None:
    """:raises ValueError: it is not the name of a topic."""
    if not _topic(topic) or len(topic) > _LONGEST:
        raise ValueError(
            f"{topic!r:.80} is not a topic: write words of letters, digits, _ and -, with dots between them"
        )


def check_pattern(pattern: str) -> None:
    """:raises ValueError: it is neither a topic nor a pattern of topics."""
    if not _pattern(pattern) or len(pattern) > _LONGEST:
        raise ValueError(
            f"{pattern!r:.80} is not a topic or a pattern of topics: write words with dots between them, "
            "* for one word, # for any number"
        )


def check_group(group: str) -> None:
    """:raises ValueError: it is not the name of a group."""
    if not _topic(group) or len(group) > _LONGEST:
        raise ValueError(f"{group!r:.80} is not the name of a group: write words of letters, digits, _, - and dots")


def word(name: str) -> str:
    """Any name, such as a crawl's, as one word of a topic.

    What has no place in it becomes ``-``, and what is too long is cut off; a hash behind it keeps such names apart.
    """
    if name and len(name) <= _LONGEST_NAME and not _foreign.search(name):
        return name
    digest = xxhash.xxh3_64_hexdigest(name.encode(errors="surrogatepass"))[:8]
    return f"{_foreign.sub('-', name)[: _LONGEST_NAME - 9]}-{digest}"


def is_pattern(pattern: str) -> bool:
    """Whether it may match more than the topic it spells."""
    return "*" in pattern or "#" in pattern


def expression(pattern: str) -> str:
    """A regular expression, in the common subset of the dialects, that matches the same whole topics."""
    # "#" swallows the dot on one of its sides when it stands for no word at all, hence the two forms.
    words = _repeated_any.sub("#", pattern).split(".")
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
    return re.compile("|".join(expression(pattern) for pattern in patterns)).match


def matches(patterns: Iterable[str], topic: str) -> bool:
    """Whether one of the patterns takes the topic."""
    return _matcher(tuple(patterns))(topic) is not None
