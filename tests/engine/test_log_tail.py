"""The log tail: what it keeps, and that nobody else notices it."""

from __future__ import annotations

import logging
import subprocess
import sys
from logging.handlers import QueueHandler
from queue import Queue

import pytest

from uttu.engine.log_tail import LONGEST_LINE, MOST_LINES, keep_log_tail

_log = logging.getLogger("uttu.worker")
_page = logging.getLogger("uttu.page")


def test_it_keeps_the_latest_lines_without_passwords() -> None:
    with keep_log_tail() as tail:
        for number in range(MOST_LINES + 5):
            _log.info("Number %d", number)
        _log.warning("Fetched http://u:secret@a.example/ %s", "x" * 1000)
        _log.debug("Not kept")
        lines = tail.lines
    assert len(lines) == MOST_LINES
    assert lines[0].text == "Number 6"
    assert (lines[-1].level, len(lines[-1].text)) == ("warning", LONGEST_LINE)
    assert "secret" not in lines[-1].text


def test_pages_are_left_out_unless_they_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with keep_log_tail():
        assert not _page.isEnabledFor(logging.INFO)
    assert _page.level == logging.NOTSET
    with caplog.at_level(logging.INFO, "uttu"), keep_log_tail() as tail:
        _page.info("Given up")
        assert tail.lines[-1].text == "Given up"
    assert [record.getMessage() for record in caplog.records] == ["Given up"]


def test_others_get_what_they_got_before(caplog: pytest.LogCaptureFixture) -> None:
    uttu = logging.getLogger("uttu")
    before = (uttu.level, uttu.propagate, list(uttu.handlers))
    with keep_log_tail(), keep_log_tail() as tail:
        _log.info("Only kept")
        _log.warning("For all")
    assert [line.text for line in tail.lines][-2:] == ["Only kept", "For all"]
    assert [record.getMessage() for record in caplog.records] == ["For all"]
    assert (uttu.level, uttu.propagate, uttu.handlers) == before


def test_handlers_of_a_program_get_what_they_got_before() -> None:
    records: Queue[logging.LogRecord] = Queue()
    handler = QueueHandler(records)
    _log.addHandler(handler)
    try:
        with keep_log_tail() as tail:
            _log.info("Not made")
            _log.warning("For the program")
            assert tail.lines[-1].text == "For the program"
    finally:
        _log.removeHandler(handler)
    assert [records.get_nowait().getMessage() for _ in range(records.qsize())] == ["For the program"]


def test_warnings_are_printed_without_any_setup() -> None:
    program = (
        "import logging; from uttu.engine.log_tail import keep_log_tail\n"
        "with keep_log_tail():\n"
        "    logging.getLogger('uttu.crawl').info('quiet'); logging.getLogger('uttu.crawl').warning('loud')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "loud\n"
