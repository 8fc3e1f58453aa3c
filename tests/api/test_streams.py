"""The stream of events with its resume, its end and its slow clients; downloads, metrics and health."""

from __future__ import annotations

import csv
import io
import re
import socket
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.api.running import Dashboard
from uttu.api import metrics, streams
from uttu.model.crawl import WorkerReport

RATE = "/api/v1/crawls/local/shop:rate"


class Listener:
    """Reads events from a stream."""

    def __init__(self, dashboard: Dashboard, last: str = "") -> None:
        self._connection = dashboard.connect()
        resume = f"Last-Event-ID: {last}\r\n" if last else ""
        self._connection.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{resume}\r\n".encode())
        self._file = self._connection.makefile("rb")
        while self._file.readline().strip():
            pass

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._connection.close()

    def lines(self) -> Any:
        """Lines without those of the chunks around them."""
        while line := self._file.readline():
            if not re.fullmatch(rb"[0-9a-f]+\r\n|\r\n", line):
                yield line.decode().rstrip("\n")

    def next(self) -> tuple[str, dict[str, Any]]:
        """The id and the data of the next event."""
        found = ""
        for line in self.lines():
            if line.startswith("id: "):
                found = line.removeprefix("id: ")
            if line.startswith("data: "):
                return found, msgspec.json.decode(line.removeprefix("data: "))
        raise EOFError

    def wait_for_end(self) -> None:
        for _ in self.lines():
            pass


def set_rate(dashboard: Dashboard, delay: int) -> None:
    assert dashboard.post(RATE, {"host": "shop.example", "delay": delay}).status == 200


def test_events_and_resume(dashboard: Dashboard) -> None:
    with Listener(dashboard) as listener:
        set_rate(dashboard, 1)
        last, first = listener.next()
    assert first["kind"] == "operator"
    assert first["store"] == "local"
    assert first["crawl"] == "shop"
    assert first["fields"]["by"] == "local"
    set_rate(dashboard, 2)
    set_rate(dashboard, 3)
    with Listener(dashboard, last) as listener:
        delays: list[Any] = []
        while 3 not in delays:
            delays.append(listener.next()[1]["fields"]["delay"])
    # At least once, in order: those of the last seconds may come again.
    assert sorted(set(delays)) == delays[-len(set(delays)) :]
    assert {2, 3} <= set(delays)


def test_a_resume_far_back_reads_the_store(dashboard: Dashboard) -> None:
    for delay in range(5):
        set_rate(dashboard, delay)
    with Listener(dashboard, "local=0,gone=17") as listener:
        found = [listener.next()[1]["fields"]["delay"] for _ in range(5)]
    assert found == list(range(5))


def test_a_wrong_id(dashboard: Dashboard) -> None:
    answer = dashboard.get("/api/v1/events", headers={"Last-Event-ID": "nonsense"})
    assert answer.status == 422


def test_heartbeats(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_HEARTBEAT_SECONDS", 0.1)
    with Listener(dashboard) as listener:
        assert ": still here" in (line for line in listener.lines())


def test_the_server_ends_its_streams(dashboard: Dashboard) -> None:
    with Listener(dashboard) as listener:
        began = time.monotonic()
        dashboard.server.should_exit = True
        listener.wait_for_end()
        assert time.monotonic() - began < 2


def test_a_client_that_does_not_read(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_QUEUE_SIZE", 3)
    monkeypatch.setattr(streams, "_SEND_SECONDS", 0.3)
    connection = dashboard.connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    connection.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: local=0\r\n\r\n")
    time.sleep(0.3)
    hub = streams._hubs[dashboard.context]
    assert hub._listeners
    for listener in hub._listeners:
        listener.is_slow = True
        listener.queue.put_nowait(b": last\n\n")
    try:
        deadline = time.monotonic() + 10
        while hub._listeners:
            assert time.monotonic() < deadline
            set_rate(dashboard, 1)
    finally:
        connection.close()


def test_too_many_listeners(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_MOST_LISTENERS", 1)
    with Listener(dashboard):
        assert dashboard.get("/api/v1/events").status == 503


def test_downloads(dashboard: Dashboard) -> None:
    lines = dashboard.get("/api/v1/crawls/local/shop/items:download").body
    assert lines == b'{"n":2}\n{"n":1}\n'
    answer = dashboard.get("/api/v1/crawls/local/shop/items:download?format=csv")
    assert list(csv.reader(io.StringIO(answer.body.decode()))) == [["n"], ["2"], ["1"]]
    assert "attachment" in answer.headers["content-disposition"]
    assert dashboard.get("/api/v1/crawls/local/shop/items:download?format=exe").status == 422


def test_formulas_in_downloads() -> None:
    assert streams._format_row(["=1+1", "@x", "plain", -1, None]) == b"'=1+1,'@x,plain,-1,\r\n"


def test_metrics(dashboard: Dashboard) -> None:
    answer = dashboard.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.body.decode()
    line = re.compile(r'(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+\{([a-z]+="[^"\n]*",?)*\} [0-9.e+-]+)')
    assert all(line.fullmatch(each) for each in text.splitlines())
    assert 'uttu_crawl_requests{store="local",crawl="shop",state="dead"} 3' in text
    assert 'uttu_crawl_state{store="local",crawl="shop",state="stopped"} 1' in text
    assert 'uttu_store_up{store="local"} 1' in text
    # Labels are bounded: neither hosts nor URLs.
    assert "example" not in text
    assert "http" not in text.replace("Whether", "")


def test_fetches_without_a_response_are_counted() -> None:
    reports = {"a": (0.0, WorkerReport(statuses={"200": 3, "404": 1}, failed=2)), "b": (0.0, WorkerReport(failed=1))}
    counted = metrics._count_classes(SimpleNamespace(workers=reports))  # type: ignore[arg-type]
    assert counted == {"none": 3, "1xx": 0, "2xx": 3, "3xx": 0, "4xx": 1, "5xx": 0}


def test_health(dashboard: Dashboard) -> None:
    answer = dashboard.get("/healthz")
    assert answer.status == 200
    assert answer.json == {"status": "ok", "stores": {"local": "ok"}}
