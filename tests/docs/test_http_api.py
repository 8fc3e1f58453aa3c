"""The pages about the dashboard name every endpoint, metric and setting, and no others."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.docs.blocks import ROOT, prose
from uttu.api.accounts import Role
from uttu.api.endpoints import PREFIX, Endpoint
from uttu.api.routes import ENDPOINTS, PUBLIC
from uttu.api.settings import DashboardSettings

API = prose(ROOT / "docs/reference/http-api.md")
SETTINGS = prose(ROOT / "docs/reference/dashboard-settings.md")
METRICS = (ROOT / "src/uttu/api/metrics.py").read_text(encoding="utf-8")
_endpoint = re.compile(r"^\| `(GET|POST) (\S+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
_code = re.compile(r"`(\w+)`")


def list_names(endpoint: Endpoint) -> list[str]:
    """The query parameters and the fields of the body."""
    names = [name for name in endpoint.params.__struct_fields__ if name not in endpoint.path_names]
    return [*names, *(endpoint.body.__struct_fields__ if endpoint.body else ())]


def make_row(endpoint: Endpoint) -> str:
    """A row of the table, to be pasted into the page."""
    names = ", ".join(f"`{name}`" for name in list_names(endpoint)) or "–"
    path, role = endpoint.path.removeprefix(PREFIX), endpoint.role or "anyone"
    return f"| `{endpoint.method} {path}` | {role} | {names} | {endpoint.summary.replace('``', '`')} |"


def read_rows(text: str) -> dict[str, tuple[str, set[str]]]:
    return {
        f"{method} {path}": (role, set(_code.findall(names))) for method, path, role, names in _endpoint.findall(text)
    }


def test_every_endpoint_is_there_with_its_role_and_parameters() -> None:
    shown = read_rows(API)
    rows = {row: read_rows(row) for row in map(make_row, (*ENDPOINTS, *PUBLIC))}
    known = {name: value for found in rows.values() for name, value in found.items()}
    wanted = [row for row, found in rows.items() if not found.items() <= shown.items()]
    assert shown == known, "docs/reference/http-api.md needs these rows:\n" + "\n".join(wanted)


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
