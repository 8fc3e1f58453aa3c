"""Which target means which sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from uttu.errors import ConfigError, UsageError
from uttu.runtime.registry import create_sink
from uttu.sinks.csv import Csv
from uttu.sinks.json import Json, JsonLines, Stdout
from uttu.sinks.parquet import Parquet
from uttu.sinks.sqlite import Sqlite


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
    assert type(create_sink(target, "crawl")) is kind


@pytest.mark.parametrize("target", ["", "out", "out.txt", "out.jsonl.gz", ".csv"])
def test_unknown(target: str) -> None:
    with pytest.raises(ConfigError, match=r"\.jsonl, .*\.parquet"):
        create_sink(target, "crawl")


def test_the_name_of_a_file_is_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert create_sink("out.csv", "crawl").name == str(tmp_path / "out.csv")
    assert create_sink("./out.csv", "crawl").name == str(tmp_path / "out.csv")
    assert create_sink("-", "crawl").name == "-"


@pytest.mark.parametrize(
    "target",
    [
        "s3://bucket/x.jsonl",
        "S3://bucket/x.jsonl",
        "s3:/bucket/x.jsonl",
        "s3:bucket/x.jsonl",
        "gs://b/x.csv",
        "ftp://host/x.csv",
        "http://host/x.json",
        "https://host/x.json",
        "hdfs://host/x.parquet",
        "file:///tmp/x.jsonl",
        "file:x.jsonl",
        "sqlite:x.db",
        "sqlite:///x.db",
        "postgresql://host/db.csv",
        "what+ever://x.jsonl",
        " s3://b/x.jsonl",
        "redis:/host/x.jsonl",
        "kafka:x.jsonl",
        "C:/x.jsonl",
        "C:\\x.jsonl",
        "a.b-c://x.jsonl",
    ],
)
def test_an_address_that_is_not_known(target: str) -> None:
    with pytest.raises(UsageError, match=r"can't write to .*\.jsonl, .*\.parquet.*redis://"):
        create_sink(target, "crawl")


@pytest.mark.parametrize(
    "target", ["./s3:/x.jsonl", "out:2.jsonl", "10:30.jsonl", "a/s3://x.jsonl", "/s3://x.csv", "-1:2.csv"]
)
def test_a_path_with_a_colon(target: str) -> None:
    assert Path(create_sink(target, "crawl").name) == Path(target).absolute()


@pytest.mark.parametrize("target", ["a\0.jsonl", "~nobody-of-this-name/x.jsonl"])
def test_a_name_that_no_file_can_have(target: str) -> None:
    with pytest.raises(UsageError):
        create_sink(target, "crawl")


def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(UsageError) as raised:
        create_sink("ftp://me:secret@host/x.csv", "crawl")
    assert "secret" not in str(raised.value)


def test_a_home_is_meant_only_at_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert create_sink("~/x.jsonl", "crawl").name == "/home/me/x.jsonl"
    assert create_sink("./~/x.jsonl", "crawl").name == str(tmp_path / "~/x.jsonl")
    assert create_sink("./~root/x.jsonl", "crawl").name == str(tmp_path / "~root/x.jsonl")
