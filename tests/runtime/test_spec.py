"""What of a crawl's settings others may see, and what they have to be given by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from uttu import settings as config
from uttu.errors import ConfigError
from uttu.model.facts import CrawlFacts
from uttu.operations.crawls import build_crawl_command
from uttu.runtime.spec import CrawlSpec
from uttu.settings import Settings
from uttu.spider import Spider

SECRETS = {"proxy": "http://me:secret@proxy.example:3128", "headers": '{"Authorization": "secret"}'}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def plan(**flags: Any) -> CrawlSpec:
    return CrawlSpec(file=Path("shop.py"), flags=flags)


def facts(plan: CrawlSpec, settings: Settings | None = None) -> CrawlFacts:
    """What the ledger has of a crawl."""
    withheld = plan.withheld(settings or config.load_settings({}, plan.flags))
    return CrawlFacts(flags=plan.noted_flags, withheld=withheld, file="shop.py")


@pytest.mark.parametrize("proxy", [SECRETS["proxy"], "http://secret@proxy.example", "socks5://secret:@proxy.example"])
def test_a_login_goes_neither_into_the_ledger_nor_onto_a_command_line(proxy: str) -> None:
    asked = plan(**SECRETS | {"proxy": proxy}, delay=2)
    noted = facts(asked)
    assert asked.noted_flags == {"delay": 2}
    shown = build_crawl_command("shop", noted)
    assert "secret" not in " ".join([*asked.worker_command(), *shown, repr(noted)])
    assert [word for word in shown if "***" in word] == ["proxy=***", "headers=***"]


def test_a_proxy_without_a_login_is_noted() -> None:
    asked = plan(proxy="http://proxy.example:3128")
    assert asked.noted_flags == asked.flags
    assert plan().joining(Spider("shop"), facts(asked)).proxy == "http://proxy.example:3128"


def test_processes_have_it_by_their_environment() -> None:
    settings = config.load_settings({}, SECRETS | {"bus": "redis://u:secret@h", "frontier": "redis://:secret@h"})
    assert config.load_settings(environment=config.export_secrets(settings)) == settings
    assert config.load_settings(environment=config.export_secrets(Settings())) == Settings()


@pytest.mark.parametrize("name", ["proxy", "headers"])
def test_a_worker_does_not_join_without_what_it_was_not_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_flag = facts(plan(**{name: SECRETS[name]}))
    elsewhere = facts(plan(), config.load_settings({name: config.convert_setting(SECRETS[name], config._TYPES[name])}))
    for noted in (by_flag, elsewhere):
        with pytest.raises(ConfigError, match=rf"with the setting {name}, .* UTTU_{name.upper()} in the environment"):
            plan().joining(Spider("shop"), noted)
    assert "***" not in " ".join(build_crawl_command("shop", elsewhere)), "it would hide what the settings have"
    without = {"proxy": "", "headers": "{}"}[name]
    assert not getattr(plan(**{name: without}).joining(Spider("shop"), by_flag), name)
    monkeypatch.setenv(f"UTTU_{name.upper()}", SECRETS[name])
    assert getattr(plan().joining(Spider("shop"), by_flag), name)


@pytest.mark.parametrize(
    ("name", "value"),
    [("proxy", SECRETS["proxy"]), ("proxy", "http://proxy.example:3128"), ("headers", SECRETS["headers"])],
)
def test_a_crawl_does_not_go_on_without_what_it_had(name: str, value: str) -> None:
    had = facts(plan(**{name: value}))
    with pytest.raises(ConfigError, match=rf"started with the setting {name}, .* UTTU_{name.upper()} .*: -s {name}="):
        plan().check_going_on(Settings(), had)
    plan().check_going_on(config.load_settings({}, {name: value}), had)
    without = plan(**{name: {"proxy": "", "headers": "{}"}[name]})
    without.check_going_on(Settings(), had)
    plan().check_going_on(Settings(), facts(without))


def test_a_crawl_that_has_none_asks_for_none() -> None:
    plan().check_going_on(Settings(), facts(plan(delay=2)))
    assert facts(plan()).withheld == {}
    assert plan().joining(Spider("shop"), CrawlFacts()) == Settings()
