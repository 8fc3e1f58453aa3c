"""``uttu export``: the items of a crawl once more."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

from tests.cli.conftest import Uttu, make_crawl


def test_to_standard_output(uttu: Uttu) -> None:
    make_crawl()
    told = uttu("export")
    assert told.code == 0
    assert [json.loads(line) for line in told.out.splitlines()] == [{"n": 1}, {"n": 2}]
    assert told.err == "2 items of shop to standard output\n"


def test_to_several_files_at_once(uttu: Uttu) -> None:
    make_crawl()
    told = uttu("export", "shop", "-o", "a.csv", "-o", "a.json", "-o", "a.db", "--json")
    assert told.code == 0
    assert json.loads(told.out) == {"crawl": "shop", "items": {"a.csv": 2, "a.json": 2, "a.db": 2}}
    assert list(csv.DictReader(Path("a.csv").read_text().splitlines())) == [{"n": "1"}, {"n": "2"}]
    assert json.loads(Path("a.json").read_text()) == [{"n": 1}, {"n": 2}]
    db = sqlite3.connect("a.db")
    assert db.execute("SELECT n FROM items ORDER BY n").fetchall() == [(1,), (2,)]
    db.close()


def test_again_is_the_same(uttu: Uttu) -> None:
    make_crawl()
    for _ in range(2):
        assert uttu("export", "-o", "a.jsonl").code == 0
        assert Path("a.jsonl").read_text() == '{"n":1}\n{"n":2}\n'


def test_json_about_standard_output_goes_to_stderr(uttu: Uttu) -> None:
    make_crawl()
    told = uttu("export", "--json")
    assert len(told.out.splitlines()) == 2
    assert json.loads(told.err) == {"crawl": "shop", "items": {"-": 2}}


def test_what_can_not_be(uttu: Uttu) -> None:
    assert uttu("export").code == 4
    make_crawl()
    assert uttu("export", "nope").code == 4
    told = uttu("export", "-o", "a.xyz")
    assert told.code == 2
    assert "Unknown format" in told.err
    assert uttu("export", "-o", "shop.py/a.csv").code == 1
    for twice in ("-", "a.csv"):
        told = uttu("export", "-o", twice, "-o", twice)
        assert (told.code, told.out) == (2, "")
        assert "is given twice" in told.err


def test_the_store_of_a_crawl_is_no_output(uttu: Uttu) -> None:
    make_crawl()
    before = Path(".uttu/crawls/shop.db").read_bytes()
    for target in (".uttu/crawls/shop.db", ".uttu/crawls/../crawls/new.db"):
        told = uttu("export", "-o", target)
        assert told.code == 2
        assert "is in Uttu's folder of crawls" in told.err
    assert Path(".uttu/crawls/shop.db").read_bytes() == before
