"""Kill -9 of the dashboard, of a crawl, and of Redis as store and broker, while pages and streams are open."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.api.running import SAID_SECONDS, SLACK_SECONDS, Dashboard, add_users, find_free_port
from tests.api.test_outages import both as both
from tests.api.test_outages import redis as redis
from tests.api.test_streams import Listener
from tests.harness.servers import RedisServer
from uttu.api.accounts import Role
from uttu.testing.waiting import wait_until


class LivePage:
    """An open page: reads its live stream in a thread, and keeps when each text was seen."""

    def __init__(self, port: int, path: str, token: str = "") -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), 20)
        login = f"Authorization: Bearer {token}\r\n" if token else ""
        head = f"GET /live?path={path} HTTP/1.1\r\nHost: localhost\r\n{login}\r\n"
        self._connection.sendall(head.encode())
        self._texts: list[tuple[float, str]] = []
        self.ended: float | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while chunk := self._connection.recv(1 << 20):
                self._texts.append((time.monotonic(), chunk.decode(errors="replace")))
        except OSError:
            pass
        self.ended = time.monotonic()

    def wait(self, pattern: str, since: float, seconds: float = 10.0) -> float:
        """How many seconds after ``since`` a text that matches was shown."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for at, shown in list(self._texts):
                if at >= since and re.search(pattern, shown):
                    return at - since
            time.sleep(0.02)
        raise AssertionError(f"{pattern!r} was not shown within {seconds} s")

    def close(self) -> None:
        self._connection.close()


def test_redis_is_killed_while_pages_are_open(both: Dashboard, redis: RedisServer) -> None:
    remote = next(name for name in both.context.stores if name.startswith("redis"))
    pages = {path: LivePage(both.port, path) for path in ("/", f"/crawls/{remote}/remote", f"/queues/{remote}")}
    for page in pages.values():
        page.wait("fragments", 0)
    with Listener(both) as listener:
        redis.kill()
        killed = time.monotonic()
        _, notice = listener.next()
        assert (notice["store"], notice["state"]) == (remote, "away")
        said = {"events": time.monotonic() - killed}
        away = ("does not answer", "does not answer", "Connection refused")
        said |= {path: page.wait(text, killed) for (path, page), text in zip(pages.items(), away, strict=True)}
        assert max(said.values()) < SAID_SECONDS + SLACK_SECONDS, said
        redis.restart()
        back = time.monotonic()
        _, notice = listener.next()
        assert (notice["store"], notice["state"]) == (remote, "back")
        for page in pages.values():
            page.wait("fragments", back)
    for page in pages.values():
        page.close()


@contextmanager
def run_command(*words: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run an ``uttu`` command until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "uttu", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def ask(port: int, path: str, token: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def is_up(port: int) -> bool:
    try:
        return ask(port, "/healthz", "")[0] == 200
    except OSError:
        return False


def read_event(port: int, token: str, last: str) -> tuple[str, str]:
    """The id and the kind of the first event after ``last``."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {token}", "Last-Event-ID": last})
    answer, found = connection.getresponse(), ""
    try:
        while line := answer.readline().decode():
            if line.startswith("id: "):
                found = line.removeprefix("id: ").strip()
            if line.startswith("data: "):
                return found, json.loads(line.removeprefix("data: "))["kind"]
        raise EOFError
    finally:
        answer.close()
        connection.close()


def test_the_dashboard_is_killed_and_started_again(folder: Path) -> None:
    tokens, port = add_users(folder), find_free_port()
    token = tokens[Role.OPERATOR]
    words = ("dashboard", "--port", str(port))

    def set_rate() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        sent = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = json.dumps({"host": "shop.example", "delay": 2})
        connection.request("POST", "/api/v1/crawls/local/shop:rate", body, sent)
        assert connection.getresponse().status == 200
        connection.close()

    with run_command(*words, folder=folder) as process:
        wait_until(lambda: is_up(port), "the dashboard answers")
        set_rate()
        last, kind = read_event(port, token, "local=0")
        assert kind == "operator"
        page = LivePage(port, "/", token=token)
        page.wait("fragments", 0)
        process.kill()
        killed = time.monotonic()
        wait_until(lambda: page.ended, "the stream of the page ends")
        assert page.ended is not None
        assert page.ended - killed < SAID_SECONDS
        page.close()
    with run_command(*words, folder=folder):
        wait_until(lambda: is_up(port), "the dashboard answers again")
        # Nothing is lost: neither users nor the history, and streams go on where they were.
        assert ask(port, "/api/v1/session", token)[0] == 200
        assert b"shop" in ask(port, "/api/v1/crawls", token)[1]
        set_rate()
        assert read_event(port, token, last)[1] == "operator"


SPIDER = """
from uttu import Spider

spider = Spider("stuck", start="http://127.0.0.1:{port}/", robots=False)

@spider.page
def parse(page):
    pass
"""


def test_a_crawl_is_killed(dashboard: Dashboard, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (folder / "stuck.py").write_text(SPIDER.format(port=silent.getsockname()[1]))
        with run_command("crawl", "stuck.py", folder=folder) as process:
            wait_until(lambda: dashboard.get("/api/v1/crawls/local/stuck").status == 200, "the crawl is listed")
            page = LivePage(dashboard.port, "/crawls/local/stuck")
            page.wait("Running", 0)
            process.kill()
            killed = time.monotonic()
            assert page.wait("Cut short", killed) < SAID_SECONDS + SLACK_SECONDS
            problems = dashboard.get("/api/v1/overview").json["problems"]
            assert "cut short" in [each["problem"]["kind"] for each in problems]
            assert dashboard.get("/crawls/local/stuck").status == 200
            page.close()
