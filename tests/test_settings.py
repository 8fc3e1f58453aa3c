"""Where settings come from, which of several holds, and what is said of those that are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from uttu import settings as config
from uttu.errors import ConfigError, UsageError
from uttu.frontier.base import Rules
from uttu.model import Pace
from uttu.settings import Settings

# From the weakest to the strongest, each with another delay.
SOURCES = ("the spider", "the file", "the environment", "flags")


def load(folder: Path, *sources: str) -> Settings:
    """Settings where only these sources say something."""
    delays = {source: float(number) for number, source in enumerate(SOURCES, 1)}
    if "the file" in sources:
        (folder / "uttu.toml").write_text(f"delay = {delays['the file']}\n[jobs]\nbroker = 'none of the crawl'\n")
    return config.load_settings(
        {"delay": delays["the spider"]} if "the spider" in sources else None,
        {"delay": delays["flags"]} if "flags" in sources else None,
        folder=folder,
        environment={"UTTU_DELAY": str(delays["the environment"])} if "the environment" in sources else {},
    )


def test_without_any_source_the_defaults_hold(tmp_path: Path) -> None:
    assert load(tmp_path) == Settings()


@pytest.mark.parametrize("stronger", range(len(SOURCES)))
def test_the_stronger_source_holds(tmp_path: Path, stronger: int) -> None:
    """With all the weaker ones beside it, and with each of them alone."""
    expected = Settings(delay=stronger + 1.0)
    assert load(tmp_path, *SOURCES[: stronger + 1]) == expected
    for weaker in SOURCES[:stronger]:
        (tmp_path / "uttu.toml").unlink(missing_ok=True)
        assert load(tmp_path, weaker, SOURCES[stronger]) == expected


def test_what_a_stronger_source_leaves_open_is_the_weaker_ones(tmp_path: Path) -> None:
    (tmp_path / "uttu.toml").write_text("per_host = 2")
    loaded = config.load_settings({"retries": 1}, {"timeout": 5}, folder=tmp_path, environment={"UTTU_MAX_DEPTH": "4"})
    assert loaded == Settings(retries=1, per_host=2, max_depth=4, timeout=5.0)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("delay", "2", 2.0),
        ("robots", "false", False),
        ("max_pages", "10", 10),
        ("domains", "example.org, example.com", ("example.org", "example.com")),
        ("headers", '{"X-Team": "blue"}', {"X-Team": "blue"}),
        ("order", "lifo", "lifo"),
    ],
)
def test_text_of_the_environment_and_of_flags_is_read_by_the_settings_type(
    tmp_path: Path, name: str, text: str, value: object
) -> None:
    by_environment = config.load_settings(folder=tmp_path, environment={f"UTTU_{name.upper()}": text})
    by_flag = config.load_settings(flags={name: text}, folder=tmp_path, environment={})
    assert getattr(by_environment, name) == getattr(by_flag, name) == value


@pytest.mark.parametrize(
    ("spider", "file", "environment", "flags", "message"),
    [
        ({"dealy": 1}, "", {}, {}, r"^the spider: there is no setting 'dealy'; did you mean 'delay'\?$"),
        ({}, "delay = 'soon'", {}, {}, r"uttu\.toml: delay='soon': "),
        ({}, "", {"UTTU_DELAY": "soon"}, {}, "^the environment: delay='soon': "),
        ({}, "", {}, {"headers": "{"}, "^-s: headers='{': "),
        ({"timeout": 10}, "", {}, {"lease_seconds": "10"}, "timeout=10 must be shorter than lease_seconds=10"),
    ],
)
def test_what_is_wrong_is_said_with_its_source(
    tmp_path: Path, spider: dict[str, Any], file: str, environment: dict[str, str], flags: dict[str, str], message: str
) -> None:
    (tmp_path / "uttu.toml").write_text(file)
    with pytest.raises(ConfigError, match=message):
        config.load_settings(spider, flags, folder=tmp_path, environment=environment)


@pytest.mark.parametrize(("name", "load"), [("frontier", config.load_frontier), ("bus", config.load_bus)])
def test_one_setting_alone_has_the_same_order(tmp_path: Path, name: str, load: Any) -> None:
    assert load(folder=tmp_path, environment={}) == ""
    (tmp_path / "uttu.toml").write_text(f"{name} = 'file:'")
    assert load(folder=tmp_path, environment={}) == "file:"
    assert load(folder=tmp_path, environment={f"UTTU_{name.upper()}": "environment:"}) == "environment:"


def test_what_the_frontier_has_to_know() -> None:
    settings = Settings(
        order="lifo", delay=1.5, per_host=3, robots=False, lease_seconds=90.0, max_pages=7, max_pages_per_host=5
    )
    assert settings.rules == Rules(
        order="lifo", pace=Pace(1.5, 3), probe=False, lease_seconds=90.0, max_pages=7, max_per_lane=5
    )


@pytest.mark.parametrize(("text", "value"), [("no", False), ("off", False), ("0", False), ("Yes", True), ("on", True)])
def test_yes_and_no(tmp_path: Path, text: str, value: bool) -> None:
    assert config.load_settings(None, {"robots": text}, folder=tmp_path, environment={}).robots is value
    assert config.load_settings(None, folder=tmp_path, environment={"UTTU_ROBOTS": text}).robots is value


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("robots", "never", "robots='never': say true or false"),
        ("order", "random", "order='random': say one of fifo, lifo, priority"),
        ("delay", "soon", "delay='soon'"),
        ("dealy", "1", "did you mean 'delay'"),
        ("concurrency", "0", "concurrency=0 is out of range: it must be at least 1"),
    ],
)
def test_a_flag_that_is_wrong_is_wrong_usage_and_nothing_else_is(
    tmp_path: Path, name: str, value: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        config.load_settings(None, {name: value}, folder=tmp_path, environment={})
    with pytest.raises(ConfigError, match=message) as caught:
        config.load_settings({name: value}, {"throttle": "yes"}, folder=tmp_path, environment={})
    assert not isinstance(caught.value, UsageError)


def test_each_setting_with_its_source(tmp_path: Path) -> None:
    (tmp_path / "uttu.toml").write_text("delay = 2\nretries = 1\n[jobs]\nbroker = 'none of the crawl'\n")
    given: dict[str, Any] = {"folder": tmp_path, "environment": {"UTTU_RETRIES": "2", "UTTU_MAX_DEPTH": "3"}}
    spider, flags = {"delay": 1, "robots": False, "domains": ["a.example"]}, {"max_depth": "4"}
    loaded = config.load_settings(spider, flags, **given)
    shown = {each.name: each for each in config.describe_settings(loaded, spider, flags, **given)}
    assert list(shown) == list(Settings.__struct_fields__)
    found = {name: (each.value, each.source.value) for name, each in shown.items() if each.source != "default"}
    assert found == {
        "delay": (2.0, "uttu.toml"),
        "robots": (False, "spider"),
        "domains": (("a.example",), "spider"),
        "retries": (2, "environment"),
        "max_depth": (4, "flag"),
    }
    assert config.restore_settings(shown.values()) == loaded


@pytest.mark.parametrize(
    ("name", "value", "masked"),
    [
        ("frontier", "redis://u:secret@h/0", "redis://u:***@h/0"),
        ("bus", "amqp://u:secret@h", "amqp://u:***@h"),
        ("feed", "kafka://h?topic=t&password=secret", "kafka://h?topic=t&password=***"),
        ("proxy", "http://secret@p.example:3128", "http://***@p.example:3128"),
        ("proxy", "http://p.example:3128", "http://p.example:3128"),
        ("proxy", "u:secret@p.example", "***@p.example"),
        ("headers", {"Cookie": "secret", "Accept": "text/html"}, {"Cookie": "***", "Accept": "text/html"}),
        ("delay", 0.5, 0.5),
    ],
)
def test_secrets_are_masked(name: str, value: Any, masked: Any) -> None:
    assert config.mask_setting(name, value) == masked
