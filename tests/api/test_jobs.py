"""Tasks and schedules of a project with a broker: what is known of them, and when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from tests.api.running import Dashboard, run_dashboard
from tests.harness.servers import RedisServer
from uttu.jobs.schedules import catalog
from uttu.testing.waiting import wait_until


@pytest.fixture
def broker() -> Iterator[RedisServer]:
    with RedisServer("any", appendonly=True) as server:
        yield server


@pytest.fixture
def dashboard(folder: Path, broker: RedisServer) -> Iterator[Dashboard]:
    Path("uttu.toml").write_text(f'[jobs]\nbroker = "{broker.url}"\nbackend = "{broker.url}"\n')
    with run_dashboard(folder) as running:
        yield running


def _is_receiving(dashboard: Dashboard) -> bool:
    monitor = dashboard.context.task_monitor
    return monitor is not None and monitor.is_receiving


def _send_event(dashboard: Dashboard, task: str) -> None:
    """Send the event that a worker sends when it gets a task."""
    app = dashboard.context.app
    with app.connection_for_write() as connection, app.events.Dispatcher(connection, hostname="a@here") as dispatcher:
        dispatcher.send("task-received", uuid=task, name="tasks.add", args="(1, 2)", kwargs="{}")


def _hears(dashboard: Dashboard, task: str) -> bool:
    """Whether the dashboard has got an event. Redis delivers none that was sent before the subscription."""
    monitor = dashboard.context.task_monitor
    assert monitor is not None
    _send_event(dashboard, task)
    return monitor.find(task) is not None


def _knows(dashboard: Dashboard, task: str) -> bool:
    return task in [row["id"] for row in dashboard.get("/api/v1/jobs/tasks").json["tasks"]]


def test_tasks_are_known_from_the_start_on(dashboard: Dashboard) -> None:
    # Nobody has looked at Jobs yet.
    wait_until(lambda: _is_receiving(dashboard), "the dashboard receives events", 20)
    wait_until(lambda: _hears(dashboard, "first"), "the event arrives", 10)
    assert _knows(dashboard, "first")


def test_a_broker_that_is_away_and_comes_back(
    folder: Path, broker: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    Path("uttu.toml").write_text(f'[jobs]\nbroker = "{broker.url}"\n')
    broker.kill()
    with run_dashboard(folder) as dashboard:
        wait_until(lambda: dashboard.context.task_monitor, "the monitor has started", 20)
        wait_until(lambda: dashboard.context.task_monitor.error, "it says that the broker is away", 20)  # type: ignore[union-attr]
        assert dashboard.get("/").status == 200
        assert dashboard.get("/healthz").status == 200
        broker.restart()
        wait_until(lambda: _is_receiving(dashboard), "events arrive", 20)
        wait_until(lambda: _hears(dashboard, "second"), "the event arrives", 10)
        assert _knows(dashboard, "second")
    # It is said once, although the monitor tries again and again.
    said = [record.getMessage() for record in caplog.records if record.name == "uttu.jobs"]
    assert [text.startswith("Cannot receive") for text in said] == [True, False]


@pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")  # by Celery
def test_the_last_state_of_a_schedule(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"task": "uttu.fetch", "args": ["https://shop.example/"], "every": 3600}
    assert dashboard.post("/api/v1/schedules:add", {"name": "daily", "table": table}).status == 200
    assert dashboard.get("/api/v1/schedules").json[0]["last_state"] == ""
    real = catalog.list_schedules
    # As if a beat had sent it.
    monkeypatch.setattr(
        catalog, "list_schedules", lambda given: [structs.replace(row, last_task="sent") for row in real(given)]
    )
    dashboard.context.app.backend.mark_as_failure("sent", ValueError("no"))
    dashboard.context.forget()
    (row,) = dashboard.get("/api/v1/schedules").json
    assert (row["last_task"], row["last_state"]) == ("sent", "FAILURE")
    assert "Failed" in dashboard.get("/schedules").body.decode()


@pytest.mark.parametrize(
    ("address", "host", "link"),
    [
        ("127.0.0.1", "localhost", "http://127.0.0.1:5555"),
        ("127.0.0.1", "crawls.example", ""),
        ("0.0.0.0", "crawls.example", "http://crawls.example:5555"),
        ("::", "[::1]", "http://[::1]:5555"),
        ("flower.example", "crawls.example", "http://flower.example:5555"),
    ],
)
def test_the_link_to_flower(address: str, host: str, link: str) -> None:
    from uttu.api.access import parse_host
    from uttu.api.data.jobs import _flower
    from uttu.api.pages.rendering import Frame, _reach
    from uttu.api.pages.shapes import Role, User

    class App:
        class uttu:  # noqa: N801
            flower = {"address": address}

    frame = Frame(user=User("wang", Role.ADMIN), path="/jobs", host=parse_host(f"{host}:8642"))
    assert _reach(frame, _flower(App)) == link
