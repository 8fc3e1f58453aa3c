"""The table [dashboard], and the names of stores and brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from uttu.api.settings import is_loopback, load_config, name_servers
from uttu.errors import ConfigError, UsageError
from uttu.setting_names import DASHBOARD_SETTINGS
from uttu.settings import load_settings


def test_defaults(tmp_path: Path) -> None:
    config = load_config(tmp_path, environment={})
    assert config.stores == {"local": ""}
    assert config.buses == {}
    assert config.settings.host == "127.0.0.1"
    assert config.access_file == tmp_path / ".uttu/dashboard/access.json"


def test_the_frontier_and_the_bus_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "uttu.toml").write_text('frontier = "redis://:secret@h:1/2"\nbus = "amqp://u:secret@h/v"\n')
    config = load_config(tmp_path, environment={})
    assert config.stores == {"redis-h-1-2": ""}
    assert config.buses == {"amqp-h-v": "amqp://u:secret@h/v"}


def test_names() -> None:
    urls = [
        "redis://h:1/0",
        "redis://:p@h:1/0",
        "sqlite:other/folder",
        "kafka://a:1,b:2",
        "redis+unix://:p@q@/tmp/s?db=1",
    ]
    names = name_servers(urls)
    assert list(names) == ["redis-h-1-0", "redis-h-1-0-2", "sqlite-folder", "kafka-a-1-b-2", "redis-unix-tmp-s"]
    assert not any("p@" in name or ":" in name or "/" in name for name in names)


def test_sources(tmp_path: Path) -> None:
    (tmp_path / "uttu.toml").write_text('[dashboard]\nport = 1000\nstores = ["sqlite:.", "redis://h"]\n')
    assert load_config(tmp_path, environment={}).settings.port == 1000
    assert load_config(tmp_path, environment={"UTTU_DASHBOARD_PORT": "1001"}).settings.port == 1001
    assert load_config(tmp_path, {"port": 1002}, {"UTTU_DASHBOARD_PORT": "1001"}).settings.port == 1002
    assert list(load_config(tmp_path, environment={}).stores) == ["local", "redis-h"]
    load_settings(folder=tmp_path, environment={})  # it is no setting of a crawl


@pytest.mark.parametrize(
    "line", ["port = 70000", "prot = 1", 'root_path = "x"', 'root_path = "/x/"', 'tls_cert = "a"', "session_hours = 0"]
)
def test_wrong_settings(tmp_path: Path, line: str) -> None:
    (tmp_path / "uttu.toml").write_text(f"[dashboard]\n{line}\n")
    with pytest.raises(ConfigError):
        load_config(tmp_path, environment={})


def test_wrong_flags(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both"):
        load_config(tmp_path, {"tls_cert": "x"}, {})


def test_the_names_are_known_to_the_settings() -> None:
    from uttu.api.settings import DashboardSettings

    assert DashboardSettings.__struct_fields__ == DASHBOARD_SETTINGS


def test_loopback() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "x.localhost", "LOCALHOST."]))
    assert not any(map(is_loopback, ["", "0.0.0.0", "::", "localhost.example", "10.0.0.1", "127.0.0.1.nip.io"]))
