"""Pages of lanes and dead letters, as operators list and search them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from uttu.model.lease import DeadLetter, LaneState


class LaneFilter(StrEnum):
    """Which lanes to list."""

    ALL = "all"
    """With requests that are pending or in flight."""
    HELD = "held"
    """Held for a time, with a reason."""
    WAITING = "waiting"
    """With pending requests, due later."""
    READY = "ready"
    """With pending requests, due now."""
    ACTIVE = "active"
    """With requests in flight."""
    PINNED = "pinned"
    """With a pace that an operator set."""
    IDLE = "idle"
    """Without requests that are pending or in flight."""


class LaneQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for a page of lanes: those with the most pending requests first, then by name.

    ``match`` is a part of the name; upper and lower case are alike. ``after`` is the ``next`` of the page before.
    ``name`` asks for the lane of exactly this name, which a store finds without looking at others.
    """

    limit: int = 50
    after: str = ""
    match: str = ""
    only: LaneFilter = LaneFilter.ALL
    name: str = ""


class LanePage(msgspec.Struct, frozen=True):
    """A page of lanes. ``next`` is empty at the end. ``total`` counts all that match, if the store knows it."""

    lanes: list[LaneState]
    next: str = ""
    total: int | None = None


class DeadQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for a page of dead letters, the latest first.

    ``kind`` and ``message`` choose a group, or all groups with this kind or message; see :class:`DeadGroup`. ``match``
    is a part of the URL or of the reason; upper and lower case of ASCII letters are alike. ``after`` is the ``next`` of
    the page before.
    """

    limit: int = 50
    after: str = ""
    kind: str = ""
    message: str = ""
    match: str = ""


class DeadPage(msgspec.Struct, frozen=True):
    """A page of dead letters.

    ``next`` is empty at the end. One call looks at ``MOST_SEARCHED`` letters at most, so a page of a search may be
    short or empty although there are more.
    """

    letters: list[DeadLetter]
    next: str = ""


MOST_SEARCHED: Final = 20_000
"""The most dead letters, or items, that one search looks at."""
MOST_DEAD_GROUPS: Final = 500
"""The most groups of dead letters in a crawl. Beyond it, a letter with a new message joins OTHER_MESSAGES of its
kind: there is one more group of each kind. A group without letters does not exist.

Stores read both numbers when they need them, so that tests can lower them.
"""
OTHER_MESSAGES: Final = "other messages"
NO_MESSAGE: Final = "no message"
"""The group of letters without a reason."""


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one kind with alike reasons. ``message`` is what :func:`group_reason` makes of their reasons.

    ``last`` is the time of the latest one, and ``sample`` its URL.
    """

    kind: str
    message: str
    count: int
    last: float
    sample: str


def count_kinds(groups: Iterable[DeadGroup]) -> dict[str, int]:
    """The number of dead letters of each kind, the most frequent first."""
    kinds: Counter[str] = Counter()
    for group in groups:
        kinds[group.kind] += group.count
    return dict(kinds.most_common())


_LONGEST_MESSAGE: Final = 120
# Only the beginning of a reason counts. A cut reason gives the same message unless it has very long URLs.
_LONGEST_REASON: Final = 2000
_VARIABLE_PARTS: Final = re.compile(
    r"""
      (?P<url>      [A-Za-z][A-Za-z0-9+.-]*:// [^\s'"<>]+ )
    # A quote inside a word is an apostrophe.
    | (?P<quoted>   (?<!\w)' [^']* '(?!\w) | " [^"]* " )
    | (?P<status>   (?<=\bstatus\ )\d{3}\b )
    # Hexadecimal identifiers need a digit; words such as "defaced" stay.
    | (?P<number>   0x[0-9a-fA-F]+ | \b(?=[a-fA-F-]*\d)[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*\b | \d+(?:[.,:]\d+)* )
    """,
    re.VERBOSE,
)
_REPLACEMENTS: Final = {"url": "URL", "quoted": "'…'", "number": "N"}


def group_reason(reason: str) -> str:
    """Return the part of a reason that alike dead letters share, in one line.

    URLs, quoted texts and numbers are replaced. The number of a status stays: there are few, and each is another
    problem.
    """
    return _group(reason[:_LONGEST_REASON])


# A crawl has few different reasons: a million letters of the version before are grouped when a file is opened.
@lru_cache(maxsize=1024)
def _group(reason: str) -> str:
    lines = reason.strip().splitlines()
    if not lines:
        return NO_MESSAGE
    return _VARIABLE_PARTS.sub(_replace_part, " ".join(lines[0].split()))[:_LONGEST_MESSAGE]


def _replace_part(found: re.Match[str]) -> str:
    return _REPLACEMENTS.get(found.lastgroup or "", found[0])
