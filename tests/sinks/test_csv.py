"""CSV: the contract, columns that appear late, and how values look."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from uttu.errors import SinkError
from uttu.frontier.base import StoredItem
from uttu.sinks.base import Restart, Sink
from uttu.sinks.csv import Csv
from uttu.testing.contracts.sinks import Row, SinkContract


def items(*values: Any) -> list[StoredItem]:
    return [StoredItem(n, str(n), json.dumps(value).encode()) for n, value in enumerate(values, 1)]


def write_all(path: Path, *values: Any) -> str:
    sink = Csv(path)
    sink.open(b"")
    try:
        sink.write(items(*values))
    finally:
        sink.close(finished=True)
    return path.read_bytes().decode()


class TestCsv(SinkContract):
    suffix = ".csv"

    def make(self, path: Path) -> Sink:
        return Csv(path)

    def read(self, path: Path) -> list[Row]:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, strict=True))


def test_values(tmp_path: Path) -> None:
    row = {"s": "a,b", "i": 7, "f": 1.5, "t": True, "n": None, "l": [1, "x"], "d": {"k": "v"}}
    assert write_all(tmp_path / "out.csv", row, {"i": 10**25}) == (
        's,i,f,t,n,l,d\n"a,b",7,1.5,true,,"[1,""x""]","{""k"":""v""}"\n,10000000000000000000000000,,,,,\n'
    )


def test_a_bare_carriage_return_is_quoted(tmp_path: Path) -> None:
    assert write_all(tmp_path / "out.csv", {"a": "x\ry", "b": "x\r\n"}) == 'a,b\n"x\ry","x\r\n"\n'


def test_other_items_than_objects_go_to_the_column_value(tmp_path: Path) -> None:
    assert write_all(tmp_path / "out.csv", "text", [1, 2], 3) == 'value\ntext\n"[1,2]"\n3\n'


def test_empty_objects_are_rows(tmp_path: Path) -> None:
    assert write_all(tmp_path / "out.csv", {}, {}) == 'value\n""\n""\n'


def test_new_key_restarts_the_file_with_all_columns(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    sink = Csv(path)
    sink.open(b"")
    sink.write(items({"a": 1}))
    with pytest.raises(Restart):
        sink.write(items({"b": 2, "c": 3}))
    assert path.read_text() == "a\n1\n"

    sink.open(b"")
    sink.write(items({"a": 1}))
    note = sink.write(items({"b": 2, "c": 3}))
    sink.close(finished=False)
    assert path.read_text() == "a,b,c\n1,,\n,2,3\n"

    later = Csv(path)
    later.open(note)
    later.write(items({"c": 4}))
    later.close(finished=True)
    assert path.read_text() == "a,b,c\n1,,\n,2,3\n,,4\n"


def test_keys_that_hold_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="too many for columns"):
        write_all(tmp_path / "out.csv", {str(n): n for n in range(2001)})


def test_invalid_json_is_reported_with_its_id(tmp_path: Path) -> None:
    sink = Csv(tmp_path / "out.csv")
    sink.open(b"")
    with pytest.raises(SinkError, match="Item abc-0 "):
        sink.write([StoredItem(1, "abc-0", b"{nonsense")])
    sink.close(finished=False)


def test_file_with_other_columns_restarts_the_sink(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    sink = Csv(path)
    sink.open(b"")
    note = sink.write(items({"a": 1}))
    sink.close(finished=False)
    path.write_text("b\n1\n2\n")
    with pytest.raises(Restart):
        sink.open(note)
