"""Parquet: the contract, the types, and the files beside the output."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from uttu.errors import SinkError
from uttu.frontier.base import StoredItem
from uttu.sinks import parquet
from uttu.sinks.base import Sink
from uttu.sinks.parquet import Parquet
from uttu.testing.contracts.sinks import Row, SinkContract

pq: Any = pytest.importorskip("pyarrow.parquet")


def items(*values: Any, after: int = 0) -> list[StoredItem]:
    return [StoredItem(n, f"id-{n}", json.dumps(value).encode()) for n, value in enumerate(values, after + 1)]


def write_all(path: Path, *values: Any) -> Any:
    sink = Parquet(path)
    sink.open(b"")
    if values:
        sink.write(items(*values))
    sink.close(finished=True)
    return pq.read_table(path)


class TestParquet(SinkContract):
    suffix = ".parquet"

    def make(self, path: Path) -> Sink:
        return Parquet(path)

    def read(self, path: Path) -> list[Row]:
        rows: list[Row] = pq.read_table(path).to_pylist()
        return rows

    def tear(self, path: Path) -> None:
        super().tear(spool(path))

    def lose(self, path: Path) -> None:
        spool(path).unlink()


def spool(path: Path) -> Path:
    return path.with_name(f".{path.name}.spool")


def test_types(tmp_path: Path) -> None:
    table = write_all(
        tmp_path / "out.parquet",
        {"i": 1, "f": 1, "mixed": 1, "b": True, "nothing": None, "tags": ["a"], "geo": {"lat": 1}, "odd": 1},
        {"i": 2, "f": 0.5, "mixed": "x", "b": False, "tags": [], "geo": {"lat": 0.5, "name": "y"}, "odd": [1]},
        {},
    )
    assert {field.name: str(field.type) for field in table.schema} == {
        "i": "int64",
        "f": "double",
        "mixed": "string",
        "b": "bool",
        "nothing": "string",
        "tags": "list<element: string>",
        "geo": "struct<lat: double, name: string>",
        "odd": "string",
    }
    assert table.column("mixed").to_pylist() == ["1", "x", None]
    assert table.column("odd").to_pylist() == ["1", "[1]", None]
    assert table.column("tags").to_pylist() == [["a"], [], None]
    assert table.column("geo").to_pylist() == [{"lat": 1.0, "name": None}, {"lat": 0.5, "name": "y"}, None]
    assert table.column("f").to_pylist() == [1.0, 0.5, None]


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ([], []),
        ([{}, {}], [{"value": None}] * 2),
        (["a", [1]], [{"value": '"a"'}, {"value": "[1]"}]),
        ([{"a": {}}, {"a": {}}], [{"a": "{}"}] * 2),
        ([{"": 1, "x\0y": 2}], [{"": 1, "x\0y": 2}]),
        ([{"n": 2**53 + 1}, {"n": 0.5}], [{"n": float(2**53 + 1)}, {"n": 0.5}]),
        ([{"n": 2**64}, {"n": 1}], [{"n": str(2**64)}, {"n": "1"}]),
    ],
)
def test_every_item_is_a_row(tmp_path: Path, values: list[Any], rows: list[Any]) -> None:
    table = write_all(tmp_path / "out.parquet", *values)
    assert table.num_rows == len(values)
    assert table.to_pylist() == rows


def test_row_groups_are_limited_in_rows_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 10)
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 1000)
    small, large = {"a": "x"}, {"a": "x" * 600}
    write_all(tmp_path / "out.parquet", *[small] * 25, *[large] * 5)
    meta = pq.ParquetFile(tmp_path / "out.parquet").metadata
    assert [meta.row_group(n).num_rows for n in range(meta.num_row_groups)] == [10, 10, 7, 2, 1]


def test_the_spool_stays_until_the_crawl_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    sink = Parquet(path)
    sink.open(b"")
    note = sink.write(items({"a": 1}))
    sink.close(finished=False)
    assert sorted(tmp_path.iterdir()) == [spool(path), path]
    sink.open(note)
    sink.write(items({"a": "b"}, after=1))
    sink.close(finished=True)
    assert list(tmp_path.iterdir()) == [path]
    assert pq.read_table(path).to_pylist() == [{"a": "1"}, {"a": "b"}]


def test_old_file_stays_until_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.parquet"
    write_all(path, {"a": 1})
    sink = Parquet(path)
    sink.open(b"")
    sink.write(items({"a": 2}))

    def broken(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(SinkError, match="No space left on device"):
        sink.close(finished=True)
    assert pq.read_table(path).to_pylist() == [{"a": 1}]
    assert sorted(tmp_path.iterdir()) == [spool(path), path]


def test_truncated_spool_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    sink = Parquet(path)
    sink.open(b"")
    sink.write(items({"a": 1}))
    spool(path).write_bytes(b"")
    with pytest.raises(SinkError, match="was changed by another process"):
        sink.close(finished=True)


def test_only_confirmed_items_are_converted(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    sink = Parquet(path)
    sink.open(b"")
    sink.write(items({"a": 1}))
    with spool(path).open("ab") as file:
        file.write(b'{"half":')
    sink.close(finished=True)
    assert pq.read_table(path).to_pylist() == [{"a": 1}]


def test_keys_that_hold_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="too many for columns"):
        write_all(tmp_path / "out.parquet", {str(n): n for n in range(2001)})


def test_missing_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SinkError, match=r"pip install 'uttu\[parquet\]'"):
        Parquet(tmp_path / "out.parquet")
