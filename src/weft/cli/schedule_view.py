"""How schedules are shown."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.cli.schedule_book import Book
from weft.cli.tables import Screen
from weft.cli.words import moment
from weft.jobs.schedules.base import Mark
from weft.jobs.schedules.entry import Kept


def rows(book: Book) -> list[dict[str, Any]]:
    """All schedules, as ``--json`` prints them."""
    kept = list(book.all.values())
    sent = [each for each in kept if each.state.open]
    marks = dict(
        zip((each.entry.name for each in sent), book.store.marks([each.state.open for each in sent]), strict=True)
    )
    return [_row(each, marks.get(each.entry.name), each.entry.name in book.installed) for each in kept]


def _row(kept: Kept, mark: Mark | None, installed: bool) -> dict[str, Any]:
    entry = msgspec.to_builtins(kept.entry)
    state = msgspec.to_builtins(kept.state)
    now = _now(kept, mark, installed)
    return {"name": entry.pop("name"), "state": now, "text": str(kept.entry.when), **entry} | {
        "next": state["next"], "last": state["last"], "last_task": state["open"] or None, "sent": state["sent"],
        "skipped": state["skipped"], "missed": state["missed"], "note": state["note"],
    }  # fmt: skip


def _now(kept: Kept, mark: Mark | None, installed: bool) -> str:
    if kept.state.paused:
        return "paused"
    if not installed:
        return "new"
    match mark:
        case Mark.RUNNING | Mark.WAITING:
            return "running"
        case Mark.NONE:
            return "sent"
    return "waiting"


def show(found: list[dict[str, Any]]) -> None:
    """A table for people."""
    screen = Screen()
    if not found:
        screen.line("There are no schedules. Add one: weft schedule add NAME --crawl FILE --crontab '0 7 * * *'")
        return
    head = ("NAME", "STATE", "WHEN", "TASK", "NEXT", "LAST", "FROM")
    screen.table(head, [_cells(row) for row in found])
    for row in found:
        if row["note"]:
            screen.line(f"{row['name']}: {row['note']}")
        for word, count in (("left out while the run before was not over", row["skipped"]), ("missed", row["missed"])):
            if count:
                screen.line(f"{row['name']}: {word}: {count:,}")
    if any(row["state"] == "new" for row in found):
        screen.line("new: no beat has seen it yet; start one with weft jobs beat, or weft up")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    task = " ".join([row["task"], *map(str, row["args"])])
    soon = "" if row["state"] == "paused" else _moment(row["next"])
    return row["name"], row["state"], row["text"], task, soon, _moment(row["last"]), row["source"]


def _moment(text: str | None) -> str:
    from datetime import datetime

    return moment(datetime.fromisoformat(text).timestamp()) if text else ""
