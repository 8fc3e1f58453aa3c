"""Conditions on a finished crawl, for ``--fail-on``: a metric, a comparison, a number, as in ``error_rate>5%``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import msgspec

from uttu.errors import UsageError
from uttu.model import Counts
from uttu.model.lease import DeadKind

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
# Metrics that may be compared with a percentage.
_RATES = ("error_rate",)
_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|==|!=|>|<)\s*(-?[\d.]+)(%?)\s*")


class Condition(msgspec.Struct, frozen=True):
    text: str
    name: str
    comparison: str
    value: float

    def met(self, numbers: dict[str, float]) -> bool:
        return _OPERATORS[self.comparison](numbers[self.name], self.value)


def collect_metrics(counts: Counts, dead_kinds: dict[str, int]) -> dict[str, float]:
    """The metrics that conditions can use. Pages that robots.txt forbids do not count as errors."""
    errors = counts.dead - dead_kinds.get(DeadKind.ROBOTS, 0)
    ended = counts.done + errors
    return {
        "pages": counts.done,
        "items": counts.items,
        "errors": errors,
        "dead": counts.dead,
        "bytes": counts.bytes,
        "pending": counts.work,
        "error_rate": errors / ended if ended else 0.0,
    }


def parse_condition(text: str) -> Condition:
    """Parse a condition.

    :raises UsageError: it is not a metric, a comparison and a number.
    """
    match = _CONDITION.fullmatch(text)
    metrics = collect_metrics(Counts(), {})
    if not match or match[1] not in metrics or match[3].count(".") > 1 or match[3] in ("-", ".", "-."):
        raise UsageError(
            f"--fail-on {text!r}: Write a comparison such as 'error_rate>0.05' with one of {', '.join(metrics)}"
        )
    if match[4] and match[1] not in _RATES:
        raise UsageError(f"--fail-on {text!r}: {match[1]} is a number, not a share. Leave out the %")
    return Condition(text, match[1], match[2], float(match[3]) / (100 if match[4] else 1))
