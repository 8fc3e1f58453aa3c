"""Settings that make no sense are refused where they are read, not found out by a crawl that does nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import SPIDER, Uttu
from tests.cli.conftest import uttu as uttu
from uttu.errors import ConfigError
from uttu.settings import Settings, load_settings

NUMBERS = [field.name for field in msgspec.structs.fields(Settings) if field.type in (int, float)]


def test_which_are_numbers() -> None:
    assert {"delay", "max_depth", "max_body", "timeout", "feed_idle"} <= set(NUMBERS)


@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_is_negative(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}=-1(\.0)? is out of range: it must be (more than|at least) [01]"):
        load_settings({}, {name: "-1"}, environment={})


@pytest.mark.parametrize("name", ["timeout", "connect_timeout", "read_timeout", "lease_seconds"])
def test_a_time_to_wait_is_more_than_none(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}=0\.0 is out of range: it must be more than 0"):
        load_settings({name: 0}, environment={})


@pytest.mark.parametrize("name", ["concurrency", "max_body"])
def test_what_would_let_nothing_through(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}=0 is out of range: it must be at least 1"):
        load_settings({}, environment={f"UTTU_{name.upper()}": "0"})


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_that_are_none(value: str) -> None:
    with pytest.raises(ConfigError, match=rf"^delay={value} is out of range"):
        load_settings({}, {"delay": value}, environment={})


def test_the_others_may_be_0() -> None:
    least = {"timeout": 0.1, "connect_timeout": 0.1, "read_timeout": 0.1, "lease_seconds": 1, "concurrency": 1}
    settings = load_settings(dict.fromkeys(NUMBERS, 0) | least | {"max_body": 1}, environment={})
    assert (settings.max_depth, settings.retries, settings.max_redirects) == (0, 0, 0)


def test_a_command_says_so(uttu: Uttu) -> None:
    Path("shop.py").write_text(SPIDER)
    told = uttu("crawl", "shop.py", "-s", "max_depth=-1")
    assert told.code == 2
    assert told.err == "uttu: max_depth=-1 is out of range: it must be at least 0\n"
