"""The pages about the dashboard name every endpoint, metric and setting, and no others."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.docs.blocks import ROOT, prose
from uttu.api.accounts import Role
from uttu.api.endpoints import PREFIX
from uttu.api.routes import ENDPOINTS, PUBLIC
from uttu.api.settings import DashboardSettings

API = prose(ROOT / "docs/reference/http-api.md")
SETTINGS = prose(ROOT / "docs/reference/dashboard-settings.md")
METRICS = (ROOT / "src/uttu/api/metrics.py").read_text(encoding="utf-8")
_endpoint = re.compile(r"^\| `(GET|POST) (\S+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
_code = re.compile(r"`(\w+)`")


def test_every_endpoint_is_there_with_its_role_and_parameters() -> None:
    shown = {
        f"{method} {path}": (role, set(_code.findall(names))) for method, path, role, names in _endpoint.findall(API)
    }
    known = {}
    for endpoint in (*ENDPOINTS, *PUBLIC):
        names = {name for name in endpoint.params.__struct_fields__ if name not in endpoint.path_names}
        names |= set(endpoint.body.__struct_fields__ if endpoint.body else ())
        known[f"{endpoint.method} {endpoint.path.removeprefix(PREFIX)}"] = (str(endpoint.role or "anyone"), names)
    assert shown == known


def test_every_metric_is_there() -> None:
    shown = dict(re.findall(r"^\| `(uttu_\w+)` \| (\w+) \|", API, re.MULTILINE))
    known = dict(re.findall(r'"(uttu_\w+)",\s+"(gauge|counter)"', METRICS))
    assert shown == known


def test_every_setting_is_there_with_its_default() -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", SETTINGS, re.MULTILINE))
    defaults = msgspec.to_builtins(DashboardSettings())
    assert shown == {name: msgspec.json.encode(value).decode() for name, value in defaults.items()}


@pytest.mark.parametrize("role", Role)
def test_every_role_is_explained(role: Role) -> None:
    assert f"`{role}`" in prose(ROOT / "docs/how-to/dashboard.md")
