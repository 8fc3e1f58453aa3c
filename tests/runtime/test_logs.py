"""What the log options and variables set up, and the two forms of a record."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from uttu import Page, Spider
from uttu.errors import ConfigError, UsageError
from uttu.runtime.logs import JsonFormatter, TextFormatter, choose, set_up, set_up_in_celery, tear_down
from uttu.settings import LOG_VARIABLES, find_misspelled_variables
from uttu.testing.crawls import crawl
from uttu.testing.site import Site, serve

LEVEL, FILE, FORMAT = LOG_VARIABLES
LOG = logging.getLogger("uttu.test")


@pytest.fixture(autouse=True)
def torn_down() -> Iterator[None]:
    handlers = logging.root.handlers[:]
    yield
    tear_down()
    assert logging.root.handlers == handlers


def record(text: str, *args: Any, **fields: Any) -> logging.LogRecord:
    return LOG.makeRecord(LOG.name, logging.INFO, __file__, 1, text, args, None, extra=fields)


def test_nothing_is_set_up_without_a_choice() -> None:
    before = logging.root.handlers[:]
    set_up({})
    assert logging.root.handlers == before
    assert logging.getLogger("uttu").level == logging.NOTSET


@pytest.mark.parametrize(
    ("level", "verbose", "expected"),
    [("", 0, None), ("", 1, "info"), ("", 2, "debug"), ("", 3, "debug"), ("error", 2, "error")],
)
def test_the_level(level: str, verbose: int, expected: str | None) -> None:
    environment: dict[str, str] = {}
    choose(level, verbose=verbose, environment=environment)
    assert environment.get(LEVEL) == expected
    assert logging.getLogger("uttu").level == getattr(logging, (expected or "notset").upper())


def test_the_log_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    choose("info", environment={})
    LOG.debug("no")
    LOG.info("yes %d", 1)
    logging.getLogger("elsewhere").info("no")
    logging.getLogger("elsewhere").warning("also")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(f" {os.getpid()} ")[2] for line in lines] == ["uttu.test: yes 1", "elsewhere: also"]


def test_a_file_gets_info_and_standard_error_keeps_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment: dict[str, str] = {}
    choose(file=os.path.relpath(tmp_path / "x.log"), form="json", environment=environment)
    assert environment == {FILE: str(Path(os.path.relpath(tmp_path / "x.log")).absolute()), FORMAT: "json"}
    LOG.debug("no")
    LOG.info("Held %(lane)s", {"lane": "a.example"})
    LOG.warning("careful")
    rows = [json.loads(line) for line in (tmp_path / "x.log").read_text().splitlines()]
    assert [(row["level"], row["message"]) for row in rows] == [("info", "Held a.example"), ("warning", "careful")]
    assert rows[0]["lane"] == "a.example"
    assert capsys.readouterr().err == "careful\n"


def test_a_second_set_up_replaces_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    choose("info", environment={})
    choose("info", file=str(tmp_path / "x.log"), environment={})
    LOG.info("once")
    assert (tmp_path / "x.log").read_text().count("once") == 1
    assert capsys.readouterr().err == ""


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("before\n")
    choose(file=str(file), environment={})
    LOG.info("after")
    assert file.read_text().startswith("before\n2")


@pytest.mark.parametrize(("level", "form"), [("loud", ""), ("", "xml")])
def test_an_unknown_choice_is_refused(level: str, form: str) -> None:
    with pytest.raises(UsageError, match="give one of"):
        choose(level, form=form, environment={})
    with pytest.raises(ConfigError, match=r"UTTU_LOG_\w+: there is no"):
        set_up({LEVEL: level, FORMAT: form})


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot write the log file .*: Is a directory"):
        choose(file=str(tmp_path), environment={})


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    choose(file="/dev/full", environment={})
    LOG.info("one")
    LOG.info("two")
    assert capsys.readouterr().err == "uttu: Cannot write the log file /dev/full: No space left on device\n"


def test_text() -> None:
    shown = TextFormatter().format(record("Held %(lane)s", {"lane": "a.example"}))
    assert shown.endswith(f" INFO    {os.getpid()} uttu.test: Held a.example")
    assert shown[:3] == "202"
    assert shown[19] == "."


def test_json_has_the_fields_of_a_record() -> None:
    row = json.loads(
        JsonFormatter().format(record("%(url)s: %(level)s", {"url": "http://a.example/", "level": 1}, n=2))
    )
    assert row.pop("time").endswith("+00:00")
    assert row == {
        "level": "info",
        "logger": "uttu.test",
        "process": os.getpid(),
        "message": "http://a.example/: 1",
        "url": "http://a.example/",
        "n": 2,
    }


@pytest.mark.parametrize("value", [object, b"\xff", "\udcff", float("nan"), {1: {2}}])
def test_json_takes_any_value(value: object) -> None:
    line = JsonFormatter().format(record("odd", value=value))
    assert "\n" not in line
    assert json.loads(line)["message"] == "odd"


def test_json_has_tracebacks_on_one_line() -> None:
    try:
        raise ValueError("no price")
    except ValueError:
        made = LOG.makeRecord(LOG.name, logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    row = json.loads(JsonFormatter().format(made))
    assert row["traceback"].startswith("Traceback")
    assert row["traceback"].endswith("ValueError: no price")


def test_a_celery_process_keeps_its_handlers(tmp_path: Path) -> None:
    set_up_in_celery(logging.root, {})
    assert logging.getLogger("uttu").level == logging.NOTSET
    set_up_in_celery(logging.root, {LEVEL: "debug", FILE: str(tmp_path / "x.log")})
    LOG.debug("slice")
    assert "uttu.test: slice" in (tmp_path / "x.log").read_text()


def test_celerys_task_logger_does_not_propagate_and_is_set_up_too(tmp_path: Path) -> None:
    tasks = logging.Logger("tasks")
    for _ in range(2):
        set_up_in_celery(tasks, {FILE: str(tmp_path / "x.log")})
    tasks.warning("late")
    assert (tmp_path / "x.log").read_text().count("tasks: late") == 1
    tear_down(tasks)


def test_a_celery_process_can_log_json(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(sys.stderr)
    logging.root.addHandler(handler)
    formatters = {each: each.formatter for each in logging.root.handlers}
    try:
        set_up_in_celery(logging.root, {LEVEL: "info", FORMAT: "json"})
        LOG.info("slice")
        assert json.loads(capsys.readouterr().err)["message"] == "slice"
    finally:
        for each, formatter in formatters.items():
            each.setFormatter(formatter)
        logging.root.removeHandler(handler)


def test_the_variables_are_not_taken_for_misspelled_settings() -> None:
    assert not find_misspelled_variables(dict.fromkeys(LOG_VARIABLES, "x"))
    assert "UTTU_LOG_LEVEL" in find_misspelled_variables({"UTTU_LOGLEVEL": "x"})["UTTU_LOGLEVEL"]


async def test_a_page_makes_no_log_call_at_the_default_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()
    is_enabled = logging.Logger.isEnabledFor

    def count(self: logging.Logger, level: int) -> bool:
        calls[self.name] += self.name.startswith("uttu")
        return is_enabled(self, level)

    async def calls_of(pages: int) -> int:
        calls.clear()
        async with serve(Site(products=pages)) as site:
            spider = Spider("shop", start=site.url + "shop/")

            @spider.page
            def listing(page: Page) -> Iterator[object]:
                yield page.follow_all("article.product h3 a")
                yield page.follow("li.next a")

            crawled = await crawl(spider, tmp_path / str(pages))
        assert crawled.counts.done > pages
        return calls.total()

    monkeypatch.setattr(logging.Logger, "isEnabledFor", count)
    assert await calls_of(200) == await calls_of(20)
