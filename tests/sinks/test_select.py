"""Which target means which sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.errors import ConfigError
from weft.sinks.csv import Csv
from weft.sinks.json import Json
from weft.sinks.jsonl import JsonLines
from weft.sinks.parquet import Parquet
from weft.sinks.select import sink_for
from weft.sinks.sqlite import Sqlite
from weft.sinks.stdout import Stdout


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("-", Stdout),
        ("out.jsonl", JsonLines),
        ("out.ndjson", JsonLines),
        ("a/b.c/out.JL", JsonLines),
        ("out.json", Json),
        ("out.CSV", Csv),
        ("out.parquet", Parquet),
        ("out.db", Sqlite),
        ("out.sqlite", Sqlite),
        ("out.sqlite3", Sqlite),
    ],
)
def test_known(target: str, kind: type) -> None:
    assert type(sink_for(target)) is kind


@pytest.mark.parametrize("target", ["", "out", "out.txt", "out.jsonl.gz", ".csv", "s3://bucket/out"])
def test_unknown(target: str) -> None:
    with pytest.raises(ConfigError, match=r"\.jsonl, .*\.parquet"):
        sink_for(target)


def test_the_name_of_a_file_is_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sink_for("out.csv").name == str(tmp_path / "out.csv")
    assert sink_for("./out.csv").name == str(tmp_path / "out.csv")
    assert sink_for("-").name == "-"
