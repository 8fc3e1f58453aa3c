"""Messages that are published from the dashboard, and the bus that a change is announced on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.api.running import Dashboard, run_dashboard
from tests.harness.servers import RedisServer
from uttu.bus import SubscribeOptions, connect
from uttu.errors import BusUnavailable
from uttu.operations import control


@pytest.fixture
def dashboard(folder: Path) -> Iterator[Dashboard]:
    with RedisServer("any", appendonly=True) as server:
        asyncio.run(_make_group(server.url))
        Path("uttu.toml").write_text(f'bus = "{server.url}"\n')
        with run_dashboard(folder) as running:
            yield running


async def _make_group(url: str) -> None:
    async def ignore(deliveries: object) -> None:
        pass

    bus = await connect(url)
    await (await bus.subscribe(SubscribeOptions(topics=("shop",), group="readers"), ignore)).close()
    await bus.close()


def test_payloads_are_json_or_text(dashboard: Dashboard) -> None:
    (bus,) = dashboard.context.buses
    path = f"/api/v1/buses/{bus}:publish"
    assert dashboard.post(path, {"topic": "shop", "payload": '{"n": 1}'}).status == 200
    refused = dashboard.post(path, {"topic": "shop", "payload": "hello {"})
    assert refused.status == 422
    assert refused.json["detail"].startswith("'hello {' is not JSON")
    assert dashboard.post(path, {"topic": "shop", "payload": "hello {", "text": True}).status == 200
    found = dashboard.get(f"/api/v1/buses/{bus}/groups/readers/messages").json
    assert [(each.get("payload"), each.get("text")) for each in found] == [({"n": 1}, None), (None, "hello {")]


async def test_a_change_is_announced_on_the_bus_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "uttu.toml").write_text('bus = "redis://project.example"\n')
    (tmp_path / "uttu.toml").write_text('bus = "redis://other.example"\n')
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    @asynccontextmanager
    async def refuse(url: str) -> AsyncIterator[None]:
        asked.append(url)
        raise BusUnavailable("away")
        yield

    monkeypatch.setattr(control, "connect_bus", refuse)
    change = control.StateChange(None, "pause", "", True)  # type: ignore[arg-type]
    await control.announce_change(change, lambda text: None, tmp_path / "project")
    assert asked == ["redis://project.example"]
