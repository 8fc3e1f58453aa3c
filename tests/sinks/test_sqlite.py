"""The SQLite table: the contract, its columns, and the neighbours it must not touch."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from uttu.errors import SinkError
from uttu.frontier.base import StoredItem
from uttu.sinks.base import Restart, Sink
from uttu.sinks.sqlite import Sqlite
from uttu.testing.contracts.sinks import Row, SinkContract


def items(*values: Any, after: int = 0) -> list[StoredItem]:
    return [StoredItem(n, f"id-{n}", json.dumps(value).encode()) for n, value in enumerate(values, after + 1)]


def query(path: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(sql)]


def write_all(path: Path, *values: Any) -> list[Any]:
    sink = Sqlite(path)
    sink.open(b"")
    try:
        sink.write(items(*values))
    finally:
        sink.close(finished=True)
    return query(path, "SELECT * FROM items ORDER BY rowid")


class TestSqlite(SinkContract):
    suffix = ".db"

    def make(self, path: Path) -> Sink:
        return Sqlite(path)

    def read(self, path: Path) -> list[Row]:
        rows = query(path, "SELECT * FROM items ORDER BY rowid")
        return [{key: value for key, value in row.items() if key != "_id"} for row in rows]

    def tear(self, path: Path) -> None:
        """SQLite undoes its own torn writes."""


def test_values_keep_their_types(tmp_path: Path) -> None:
    row = {"s": "a", "i": 7, "f": 1.5, "t": True, "n": None, "l": [1], "d": {"k": "v"}, "big": 2**63, "07": "07"}
    (stored,) = write_all(tmp_path / "out.db", row)
    assert stored == {
        "_id": "id-1",
        "s": "a",
        "i": 7,
        "f": 1.5,
        "t": 1,
        "n": None,
        "l": "[1]",
        "d": '{"k":"v"}',
        "big": "9223372036854775808",
        "07": "07",
    }


def test_columns_are_added_as_keys_appear(tmp_path: Path) -> None:
    assert write_all(tmp_path / "out.db", {"a": 1}, {"b": 2}, "text") == [
        {"_id": "id-1", "a": 1, "b": None, "value": None},
        {"_id": "id-2", "a": None, "b": 2, "value": None},
        {"_id": "id-3", "a": None, "b": None, "value": "text"},
    ]


def test_odd_keys(tmp_path: Path) -> None:
    keys = [
        'a"b',
        "x; DROP TABLE items",
        "select",
        "",
        "new\nline",
        "[b]",
        "nul\0",
        "Name",
        "name",
        "NAME",
        "_id",
        "_ID",
    ]
    (stored,) = write_all(tmp_path / "out.db", {key: n for n, key in enumerate(keys)})
    assert list(stored.values()) == ["id-1", *range(len(keys))]
    assert [*stored][8:] == ["Name", "name_2", "NAME_3", "_id_2", "_ID_3"]


def test_a_suffix_that_is_taken(tmp_path: Path) -> None:
    (stored,) = write_all(tmp_path / "out.db", {"a_2": 1, "A": 2, "a": 3})
    assert stored == {"_id": "id-1", "a_2": 1, "A": 2, "a_3": 3}


def test_columns_of_an_unconfirmed_batch_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    killed = Sqlite(path)
    killed.open(b"")
    note = killed.write(items({"Name": 1}))
    killed.write(items({"name": 2, "NAME": 3}, after=1))
    sink = Sqlite(path)
    sink.open(note)
    sink.write(items({"name": 2, "NAME": 3}, after=1))
    sink.close(finished=True)
    killed.close(finished=False)
    assert query(path, "SELECT * FROM items") == [
        {"_id": "id-1", "Name": 1, "name_2": None, "NAME_3": None},
        {"_id": "id-2", "Name": None, "name_2": 2, "NAME_3": 3},
    ]


def test_other_tables_stay(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE mine (a)")
        db.execute("INSERT INTO mine VALUES (1)")
        db.commit()
    write_all(path, {"a": 1})
    write_all(path, {"b": 1})
    assert query(path, "SELECT * FROM mine") == [{"a": 1}]
    assert query(path, "SELECT * FROM items") == [{"_id": "id-1", "b": 1}]


def test_foreign_table_is_not_emptied(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE items (price)")
        db.execute("INSERT INTO items VALUES (1)")
        db.commit()
    with pytest.raises(SinkError, match="was not made by Uttu"):
        Sqlite(path).open(b"")
    assert query(path, "SELECT * FROM items") == [{"price": 1}]


def test_another_table_is_another_output(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    one, other = Sqlite(path), Sqlite(path, table='odd "name"')
    assert one.name != other.name
    for sink in (one, other):
        sink.open(b"")
    one.write(items({"a": 1}))
    other.write(items({"b": 2}))
    for sink in (one, other):
        sink.close(finished=True)
    assert query(path, 'SELECT b FROM "odd ""name"""') == [{"b": 2}]


@pytest.mark.parametrize("harm", ["DELETE FROM items", "DROP TABLE items", "ALTER TABLE items DROP COLUMN a"])
def test_changed_table_restarts_the_sink(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "out.db"
    sink = Sqlite(path)
    sink.open(b"")
    note = sink.write(items({"a": 1}))
    sink.close(finished=False)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(harm)
        db.commit()
    with pytest.raises(Restart):
        sink.open(note)


def test_foreign_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "out.db").write_bytes(b"no database" * 100)
    with pytest.raises(SinkError, match=r"out\.db: file is not a database"):
        Sqlite(tmp_path / "out.db").open(b"")


def test_keys_that_hold_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="too many for columns"):
        write_all(tmp_path / "out.db", *({str(n): 1} for n in range(2001)))
