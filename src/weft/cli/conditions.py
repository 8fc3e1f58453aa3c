"""Conditions for ``--fail-on``: a number of the crawl, a comparison, a number."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import msgspec

from weft.errors import UsageError
from weft.model import Counts

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
# What can be said in percent.
_RATES = ("error_rate",)
_FORM = re.compile(r"\s*(\w+)\s*(>=|<=|==|!=|>|<)\s*(-?[\d.]+)(%?)\s*")


class Condition(msgspec.Struct, frozen=True):
    text: str
    name: str
    comparison: str
    value: float

    def met(self, numbers: dict[str, float]) -> bool:
        return _OPERATORS[self.comparison](numbers[self.name], self.value)


def numbers_of(counts: Counts, dead_kinds: dict[str, int]) -> dict[str, float]:
    """What conditions can be about. Pages that robots.txt forbids are no errors."""
    errors = counts.dead - dead_kinds.get("robots", 0)
    ended = counts.done + errors
    return {
        "pages": counts.done, "items": counts.items, "errors": errors, "dead": counts.dead, "bytes": counts.bytes,
        "pending": counts.work, "error_rate": errors / ended if ended else 0.0,
    }  # fmt: skip


def parse_condition(text: str) -> Condition:
    """:raises UsageError: it is not of that form."""
    found = _FORM.fullmatch(text)
    known = numbers_of(Counts(), {})
    if not found or found[1] not in known or found[3].count(".") > 1 or found[3] in ("-", ".", "-."):
        raise UsageError(
            f"--fail-on {text!r}: write a comparison such as 'error_rate>0.05'; known are {', '.join(known)}"
        )
    if found[4] and found[1] not in _RATES:
        raise UsageError(f"--fail-on {text!r}: {found[1]} is a number, not a share of something: leave the % out")
    return Condition(text, found[1], found[2], float(found[3]) / (100 if found[4] else 1))
