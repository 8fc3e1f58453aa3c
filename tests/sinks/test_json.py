"""The JSON array: the contract, and that the file is whole between batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from uttu.errors import SinkError
from uttu.frontier.base import StoredItem
from uttu.sinks.base import Sink
from uttu.sinks.json import Json
from uttu.testing.contracts.sinks import Row, SinkContract


class TestJson(SinkContract):
    suffix = ".json"

    def make(self, path: Path) -> Sink:
        return Json(path)

    def read(self, path: Path) -> list[Row]:
        rows: list[Row] = json.loads(path.read_bytes())
        return rows


def test_it_parses_after_every_batch(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    sink = Json(path)
    expected: list[Any] = []
    sink.open(b"")
    for n in range(5):
        assert json.loads(path.read_bytes()) == expected
        note = sink.write([StoredItem(n, str(n), b'{"n":%d}' % n), StoredItem(n, "x", b"[1,\n2]")])
        expected += [{"n": n}, [1, 2]]
        if n == 2:
            sink.close(finished=False)
            sink = Json(path)
            sink.open(note)
    sink.close(finished=True)
    assert json.loads(path.read_bytes()) == expected
    assert path.read_text().startswith('[\n{"n":0},\n[1,\n2],\n{"n":1}')


def test_it_parses_after_a_write_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.json"
    sink = Json(path)
    sink.open(b"")
    sink.write([StoredItem(1, "1", b"1")])

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(SinkError, match="Input/output error"):
        sink.write([StoredItem(2, "2", b"2")])
    sink.close(finished=False)
    assert json.loads(path.read_bytes()) == [1]
