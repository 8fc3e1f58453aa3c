"""C7: Flower shows the app's workers, tasks and queues, on every broker; on loopback, behind a password."""

from __future__ import annotations

import base64
import json
import socket
import stat
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from tests.harness.servers.ports import Port
from tests.jobs.conftest import MakeWorkshop, Workshop
from uttu.errors import ConfigError
from uttu.jobs.flower import USER, build_arguments
from uttu.testing.waiting import wait_until


class Flower:
    def __init__(self, shop: Workshop) -> None:
        self.shop = shop
        port = Port()
        self.port = port.number
        port.release()
        shop.start("jobs", "flower", f"--port={self.port}", "--inspect_timeout=3000")
        wait_until(self._answers, "Flower answers")

    def ask(self, path: str, body: Any = None, password: str | None = None) -> Any:
        password = (
            (self.shop.folder / ".uttu/jobs/flower-password").read_text().strip() if password is None else password
        )
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", method="POST" if body is not None else "GET"
        )
        login = base64.b64encode(f"{USER}:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, data, timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text.startswith(b"{") else text

    def _answers(self) -> bool:
        try:
            self.ask("/healthcheck")
        except (URLError, FileNotFoundError):
            return False
        return True


@pytest.fixture(scope="module", params=["embedded", "redis", "rabbitmq"])
def flower(request: pytest.FixtureRequest, workshops: MakeWorkshop) -> Flower:
    settings = {} if request.param == "embedded" else {"broker": request.getfixturevalue(f"{request.param}_url")}
    shop = workshops(**settings)
    shop.worker("-c", "1")
    return Flower(shop)


def test_workers(flower: Flower) -> None:
    def tasks() -> list[str]:
        # Flower asks workers one thing after the other, and shows what it has so far.
        known = flower.ask("/api/workers?refresh=1").get(f"w0-{flower.shop.name}@here", {})
        return list(known.get("registered", ()))

    wait_until(lambda: "tasks.add" in tasks(), "Flower knows the worker and its tasks")


def test_tasks(flower: Flower) -> None:
    sent: list[str] = []

    def done() -> list[str]:
        # Flower has workers tell of what they do; of what they did before, it knows nothing.
        result = flower.shop.task("add", 1, 2).apply_async()
        flower.shop.get(result)
        sent.append(result.id)
        known = flower.ask("/api/tasks")
        return [known[each]["name"] for each in sent if known.get(each, {}).get("state") == "SUCCESS"]

    wait_until(lambda: "tasks.add" in done(), "Flower knows a task")


def test_task_can_be_sent_by_the_api(flower: Flower) -> None:
    flower.ask("/api/task/send-task/tasks.say", {"args": ["by Flower"]})

    flower.shop.until_noted("by Flower")


def test_queues(flower: Flower) -> None:
    def queues() -> dict[str, int]:
        found = flower.ask("/api/queues/length")["active_queues"]
        return {queue["name"]: queue["messages"] for queue in found}

    wait_until(lambda: flower.shop.name in queues(), "Flower knows the queue")


def test_nobody_without_the_password(flower: Flower) -> None:
    with pytest.raises(HTTPError, match="401"):
        flower.ask("/api/workers", password="guess")
    file = flower.shop.folder / ".uttu/jobs/flower-password"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_open_address_without_a_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Flower at 0\.0\.0\.0 would be open to everybody"):
        build_arguments({}, ["--address=0.0.0.0"], {}, tmp_path)
    with pytest.raises(ConfigError, match="open to everybody"):
        build_arguments({"address": "0.0.0.0"}, [], {}, tmp_path)
    with pytest.raises(ConfigError, match="open to everybody"):
        build_arguments({}, [], {"FLOWER_ADDRESS": "0.0.0.0"}, tmp_path)


def test_open_address_with_a_password(tmp_path: Path) -> None:
    words = build_arguments({"basic_auth": ["a:b", "c:d"]}, ["--address=0.0.0.0", "--port=1"], {}, tmp_path)

    assert words == ["--basic_auth=a:b,c:d", "--address=0.0.0.0", "--port=1", "--address=0.0.0.0"]
    assert not list(tmp_path.iterdir()), "no password was made"


def test_ports(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for table, given, environment in (
            ({"port": taken.getsockname()[1]}, [], {}),
            ({}, [f"--port={taken.getsockname()[1]}"], {}),
            ({}, [], {"FLOWER_PORT": str(taken.getsockname()[1])}),
            ({}, ["--port=x"], {}),
            ({}, ["--port=65536"], {}),
        ):
            with pytest.raises(ConfigError, match="Flower cannot listen"):
                build_arguments(table, given, environment, tmp_path)
        assert build_arguments({}, ["--unix_socket=s"], {}, tmp_path)


def test_password_is_made_once(tmp_path: Path) -> None:
    first, second = (build_arguments({}, [], {}, tmp_path) for _ in range(2))

    assert first == second
    assert first[0].startswith(f"--basic_auth={USER}:")
    assert first[-1] == "--address=127.0.0.1"
