"""Showing dead letters: requests that were given up, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from weft.cli.tables import Screen
from weft.cli.words import ago, moment, number, print_json, say
from weft.frontier.base import DeadLetter
from weft.frontier.depot import Store

# What SQLite, and everything after it, takes as no limit.
_ALL = 2**31


async def show(store: Store, limit: int, kind: str, detail: bool, as_json: bool) -> None:
    """The latest of them; of one kind, or all."""
    letters, kinds = await store.inspector.dead(limit or _ALL, kind), await store.inspector.dead_kinds()
    if as_json:
        print_json([_as_dict(letter) for letter in letters])
        return
    if not letters:
        say(f"no dead letters of kind {kind!r}; there are: {kinds_of(kinds)}" if kind and kinds else "no dead letters")
        return
    (_show_details if detail else _show_table)(letters, Screen())
    total = kinds.get(kind, 0) if kind else sum(kinds.values())
    if total > len(letters):
        say(f"the latest {len(letters):,} of {total:,}; -n 0 lists all")


def kinds_of(kinds: dict[str, int]) -> str:
    """``3 http, 1 handler``"""
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())


def _show_table(letters: Sequence[DeadLetter], screen: Screen) -> None:
    screen.table(
        ("when", "kind", "tries", "url", "reason"),
        [(ago(time.time() - each.at), each.kind, str(each.attempt), _asked(each), each.reason) for each in letters],
        numbers=("tries",),
    )


def _show_details(letters: Sequence[DeadLetter], screen: Screen) -> None:
    for letter in letters:
        screen.marked(letter.kind, f"  {_asked(letter)}")
        screen.line(f"  {letter.reason}  ({moment(letter.at)}, {number(letter.attempt, 'try', 'tries')})")
        for line in letter.detail.splitlines():
            screen.line(f"    {line}", "dim")


def _asked(letter: DeadLetter) -> str:
    request = letter.request
    return request.url if request.method == "GET" else f"{request.method} {request.url}"


def _as_dict(letter: DeadLetter) -> dict[str, Any]:
    fields = msgspec.structs.asdict(letter)
    del fields["request"]
    return {"url": letter.request.url, "method": letter.request.method, **fields}
