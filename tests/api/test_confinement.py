"""Requests can't name files outside of the project's folder, or servers that the project does not use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.running import Dashboard

OUTSIDE = (
    "../out.jsonl",
    "/tmp/out.jsonl",
    "~/out.jsonl",
    "./~root/out.jsonl",
    ".uttu/out.jsonl",
    "-",
    "a/../../out.csv",
)


@pytest.mark.parametrize("target", [*OUTSIDE, "redis://198.51.100.7/0/items", "out\0.jsonl", ""])
def test_exports(dashboard: Dashboard, target: str) -> None:
    answer = dashboard.post("/api/v1/crawls/local/shop:export", {"target": target})
    assert answer.status == 422, answer.body


def test_an_export_within_the_folder(dashboard: Dashboard) -> None:
    answer = dashboard.post("/api/v1/crawls/local/shop:export", {"target": "out.jsonl"})
    assert answer.status == 200, answer.body
    assert Path("out.jsonl").read_text() == '{"n":1}\n{"n":2}\n'


@pytest.mark.parametrize("file", ["../shop.py", "/etc/passwd", "~/shop.py", ".uttu/shop.py", "shop.py/../../x.py", ""])
def test_starting_a_crawl(dashboard: Dashboard, file: str) -> None:
    answer = dashboard.post("/api/v1/crawls:start", {"file": file})
    assert answer.status == 422, answer.body


@pytest.mark.parametrize(
    "settings",
    [
        {"frontier": "redis://198.51.100.7"},
        {"proxy": "http://198.51.100.7"},
        {"ca_file": "/etc/passwd"},
        {"private": "true"},
        {"nonsense": "1"},
    ],
)
def test_settings_of_a_crawl(dashboard: Dashboard, settings: dict[str, str]) -> None:
    answer = dashboard.post("/api/v1/crawls:start", {"file": "shop.py", "settings": settings})
    assert answer.status == 422, answer.body


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://localhost:1/", "http://169.254.169.254/", "http://2130706433/"]
)
def test_fetching_private_pages(dashboard: Dashboard, url: str) -> None:
    answer = dashboard.post("/api/v1/pages:fetch", {"url": url})
    assert answer.status == 422, answer.body
    assert "private" in answer.json["detail"]


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fapp.py", "/static/x"]
)
def test_static_files(dashboard: Dashboard, path: str) -> None:
    assert dashboard.get(path).status == 404


def test_names_with_paths(dashboard: Dashboard) -> None:
    for crawl in ("..%2f..%2fetc", "%2e%2e", "shop%00", "a%2fb"):
        assert dashboard.get(f"/api/v1/crawls/local/{crawl}").status == 404


def test_moving_to_an_unknown_store(dashboard: Dashboard) -> None:
    answer = dashboard.post("/api/v1/crawls/local/shop:move", {"target": "sqlite:/tmp"})
    assert answer.status == 404
