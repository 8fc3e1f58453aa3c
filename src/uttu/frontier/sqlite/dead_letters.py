"""Dead letters in the SQLite file: their groups, pages of them, and their revival.

A group has the letters of one kind whose reasons are alike (:func:`~uttu.model.inspection.group_reason`). The table
``dead_groups`` counts them, so that a million letters are summed up at once. Whoever adds or removes letters counts
them in the same transaction. Indexes on the time, alone and within a kind or a group, give every list in its order, so
a page costs the same wherever it is. Only letters pay for all of this: pages that are done touch none of it.

All functions run within the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from uttu.errors import RefusedData
from uttu.model import Request, inspection
from uttu.model.inspection import OTHER_MESSAGES, DeadGroup, DeadPage, DeadQuery, group_reason
from uttu.model.lease import DeadLetter

Burial = tuple[int, str, str, str, int]
"""What becomes a dead letter: the id of its lease, kind, reason, detail and status."""


def bury(db: sqlite3.Connection, burials: Sequence[Burial], now: float) -> None:
    """Store leased requests as dead letters. The leases stay."""
    if not burials:
        return
    groups = join_groups(db, [(kind, reason) for _, kind, reason, _, _ in burials])
    db.executemany(
        "INSERT INTO dead (fp, lane, rank, seq, attempt, record, at, kind, reason, detail, status, grp)"
        " SELECT fp, lane, rank, seq, attempt, record, ?2, ?3, ?4, ?5, ?6, ?7 FROM leases WHERE id = ?1",
        [(lease, now, *why, group) for (lease, *why), group in zip(burials, groups, strict=True)],
    )
    db.execute("UPDATE tally SET dead = dead + ?", (len(burials),))


def join_groups(db: sqlite3.Connection, causes: Sequence[tuple[str, str]], weight: int = 1) -> list[int]:
    """Count letters with these kinds and reasons in their groups; return the id of the group of each.

    :param weight: 0 to create groups without counting; :func:`recount_groups` does it later.
    """
    keys = [(kind, group_reason(reason)) for kind, reason in causes]
    ids = {key: _join_group(db, *key, weight * count) for key, count in Counter(keys).items()}
    return [ids[key] for key in keys]


def _join_group(db: sqlite3.Connection, kind: str, message: str, count: int) -> int:
    found = db.execute(
        "UPDATE dead_groups SET count = count + ? WHERE kind = ? AND message = ? RETURNING id", (count, kind, message)
    ).fetchone()
    if found is None:
        (groups,) = db.execute("SELECT count(*) FROM dead_groups").fetchone()
        found = db.execute(
            "INSERT INTO dead_groups (kind, message, count) VALUES (?, ?, ?)"
            " ON CONFLICT (kind, message) DO UPDATE SET count = count + excluded.count RETURNING id",
            (kind, message if groups < inspection.MOST_DEAD_GROUPS else OTHER_MESSAGES, count),
        ).fetchone()
    return int(found[0])


def recount_groups(db: sqlite3.Connection) -> None:
    """Count all letters again, and remove groups without letters."""
    db.execute("UPDATE dead_groups SET count = (SELECT count(*) FROM dead WHERE grp = dead_groups.id)")
    db.execute("DELETE FROM dead_groups WHERE count = 0")


def copy_letters(db: sqlite3.Connection, source: str) -> None:
    """Copy all letters from a table of layout 3, which has no groups, in the order of their deaths."""
    ids: dict[tuple[str, str], int] = {}
    counts: Counter[int] = Counter()

    def group(kind: str, reason: str) -> int:
        key = (kind, group_reason(reason))
        if key not in ids and len(ids) >= inspection.MOST_DEAD_GROUPS:
            key = (kind, OTHER_MESSAGES)
        number = ids.setdefault(key, len(ids) + 1)
        counts[number] += 1
        return number

    db.create_function("group_letter", 2, group)
    columns = "fp, lane, rank, seq, attempt, record, at, kind, reason, detail, status"
    db.execute(
        f"INSERT INTO dead ({columns}, grp) SELECT {columns}, group_letter(kind, reason)"
        # Sort fingerprints only: the records of a million letters are more than fits into memory.
        f" FROM (SELECT fp AS number FROM {source} ORDER BY at LIMIT -1) CROSS JOIN {source} ON fp = number"
    )
    db.executemany("INSERT INTO dead_groups VALUES (?, ?, ?, ?)", [(n, *key, counts[n]) for key, n in ids.items()])
    db.create_function("group_letter", 2, None)


def read_groups(db: sqlite3.Connection) -> list[DeadGroup]:
    """See :meth:`uttu.frontier.base.Inspector.dead_groups`."""
    rows = db.execute(
        "SELECT g.kind, message, count, last.at, last.record ->> 'u' FROM dead_groups g JOIN dead last ON last.id ="
        " (SELECT id FROM dead WHERE grp = g.id ORDER BY at DESC, id DESC LIMIT 1) ORDER BY count DESC, g.kind, message"
    )
    return [
        DeadGroup(kind=kind, message=message, count=count, last=at, sample=url)
        for kind, message, count, at, url in rows
    ]


def read_page(db: sqlite3.Connection, query: DeadQuery) -> DeadPage:
    """See :meth:`uttu.frontier.base.Inspector.dead`."""
    most = inspection.MOST_SEARCHED
    limit = max(1, min(query.limit, most))
    walk, bindings = _walk(db, query)
    if not walk:
        return DeadPage([])
    rows = db.execute(
        "SELECT d.at, d.id, record, kind, reason, detail, status, attempt"
        # CROSS keeps the order of the walk, and takes no more of it than the page needs.
        f" FROM (SELECT at, id FROM ({walk} LIMIT {most if query.match else limit + 1})) w"
        f" CROSS JOIN dead d ON d.id = w.id {_MATCHES if query.match else ''} LIMIT {limit + 1}",
        bindings | _patterns(query.match),
    ).fetchall()
    letters = [
        DeadLetter(
            request=Request.from_record(record),
            kind=kind,
            reason=reason,
            detail=detail,
            status=status,
            attempt=attempt,
            at=at,
        )
        for at, _, record, kind, reason, detail, status, attempt in rows[:limit]
    ]
    if len(rows) > limit:
        return DeadPage(letters, _cursor(*rows[limit - 1][:2]))
    # The last letter that the search looked at, and the one after it.
    ends = db.execute(f"{walk} LIMIT 2 OFFSET {most - 1}", bindings).fetchall() if query.match else []
    return DeadPage(letters, _cursor(*ends[0]) if len(ends) == 2 else "")


# The record is searched as it is first, because taking it apart costs more.
_MATCHES = """
WHERE reason LIKE :text ESCAPE '\\' OR record LIKE :encoded ESCAPE '\\' AND record ->> 'u' LIKE :text ESCAPE '\\'
"""


def contains(part: str) -> str:
    """Return a pattern, for LIKE with a backslash as ESCAPE, of texts with this part. LIKE ignores the case."""
    for special in "\\%_":
        part = part.replace(special, "\\" + special)
    return f"%{part}%"


def _patterns(match: str) -> dict[str, str]:
    if not match:
        return {}
    return {"text": contains(match), "encoded": contains(msgspec.json.encode(match).decode()[1:-1])}


_AFTER_ALL = (1e18, 0)  # a time that no letter has


def _walk(db: sqlite3.Connection, query: DeadQuery) -> tuple[str, dict[str, Any]]:
    """Return a SELECT of times and ids, latest first, from the cursor on; empty if there are none."""
    places = ["true"]
    if query.message:
        places = [f"grp = {number}" for number in _find_groups(db, query.kind, query.message)]
    elif query.kind:
        places = ["kind = :kind"]
    at, number = _parse_cursor(query.after) if query.after else _AFTER_ALL
    # SQLite merges the parts of the union as it goes, so each is read no further than needed.
    parts = [f"SELECT at, id FROM dead WHERE {place} AND (at, id) < (:at, :id)" for place in places]
    walk = f"{' UNION ALL '.join(parts)} ORDER BY at DESC, id DESC" if parts else ""
    return walk, {"kind": query.kind, "at": at, "id": number}


def _find_groups(db: sqlite3.Connection, kind: str, message: str) -> list[int]:
    query = "SELECT id FROM dead_groups WHERE message = ? AND ? IN (kind, '') LIMIT 100"
    return [number for (number,) in db.execute(query, (message, kind))]


def _cursor(at: float, number: int) -> str:
    return f"{at!r} {number}"


def _parse_cursor(after: str) -> tuple[float, int]:
    at, _, number = after.partition(" ")
    try:
        return float(at), int(number)
    except ValueError as error:
        raise RefusedData(f"There is no page of dead letters after {after!r}; begin with the first page") from error


def revive(db: sqlite3.Connection, kind: str, url: str, message: str) -> int:
    """See :meth:`uttu.frontier.base.Inspector.revive`."""
    conditions, bindings = ["true"], {"kind": kind, "url": url, "message": message, "fps": "[]"}
    if kind:
        conditions.append("kind = :kind")
    if message:
        conditions.append("grp IN (SELECT id FROM dead_groups WHERE message = :message)")
    if url:
        found = db.execute(
            "SELECT fp FROM dead WHERE instr(record, ?) > 0 AND record ->> 'u' = ?",
            (msgspec.json.encode(url).decode()[1:-1], url),
        )
        bindings["fps"] = str([fp for (fp,) in found])
        conditions.append("fp IN (SELECT value FROM json_each(:fps))")
    chosen = f"FROM dead WHERE {' AND '.join(conditions)}"
    revived = db.execute(
        "INSERT INTO queue (lane, rank, seq, fp, attempt, losses, record)"
        f" SELECT lane, rank, seq, fp, 0, 0, record {chosen}",
        bindings,
    ).rowcount
    for table, counter, sign in (("lanes", "pending", "+"), ("dead_groups", "count", "-")):
        column = "lane" if table == "lanes" else "grp"
        db.execute(
            f"UPDATE {table} SET {counter} = {counter} {sign} n"
            f" FROM (SELECT {column}, count(*) n {chosen} GROUP BY {column}) back WHERE {table}.id = back.{column}",
            bindings,
        )
    db.execute(f"DELETE {chosen}", bindings)
    db.execute("DELETE FROM dead_groups WHERE count = 0")
    db.execute("UPDATE tally SET dead = dead - ?1, pending = pending + ?1", (revived,))
    return revived
