"""A dashboard process, and those who look at it: requests that are timed, and pages that stay open."""

from __future__ import annotations

import contextlib
import http.client
import math
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from bench.dashboard.stores import CRAWL, Project

_UTTU: Final = Path(sys.executable).with_name("uttu")
_START_SECONDS: Final = 30.0
# The page of a URL says so while it searches.
_SEARCHING: Final = b"data-searching"
_STORY: Final = b'class="story"'


class Dashboard:
    """A running ``uttu dashboard``."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port

    def get(self, path: str, connection: http.client.HTTPConnection | None = None) -> tuple[int, bytes]:
        """The status and the body at an address."""
        connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()

    def read_memory_mb(self) -> dict[str, float]:
        """Its resident memory now and at most, in MB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return {
            name: round(int(fields[key].split()[0]) / 1024, 1) for name, key in (("now", "VmRSS"), ("peak", "VmHWM"))
        }

    @contextlib.contextmanager
    def watch(self, path: str) -> Iterator[list[float]]:
        """Load a page and follow its live stream during the block. Yields the times of its events."""
        self.get(path)
        stream = socket.create_connection(("127.0.0.1", self.port))
        request = f"GET /live?path={quote(path, safe='')} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n"
        stream.sendall(request.encode())
        events: list[float] = []

        def read() -> None:
            with contextlib.suppress(OSError):
                while data := stream.recv(1 << 20):
                    if b"event: fragments" in data:
                        events.append(time.perf_counter())

        reading = threading.Thread(target=read)
        reading.start()
        try:
            yield events
        finally:
            stream.shutdown(socket.SHUT_RDWR)
            reading.join()
            stream.close()


@contextlib.contextmanager
def run_dashboard(project: Project) -> Iterator[Dashboard]:
    """Run ``uttu dashboard`` in the project's folder during the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (project.folder / "dashboard.log").open("ab")
    command = [str(_UTTU), "dashboard", "--port", str(port)]
    process = subprocess.Popen(command, cwd=project.folder, stdout=log, stderr=log)
    dashboard = Dashboard(process.pid, port)
    try:
        end = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError):
                if dashboard.get("/healthz")[0] == 200:
                    break
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((project.folder / "dashboard.log").read_text())
            time.sleep(0.05)
        yield dashboard
    finally:
        process.terminate()
        process.wait(10)
        log.close()


def list_addresses(project: Project, dashboard: Dashboard) -> dict[str, str]:
    """Every page, every tab, and the main endpoints of the API, by name."""
    crawl, api = f"/crawls/{project.store}/{CRAWL}", f"/api/v1/crawls/{project.store}/{CRAWL}"
    group = "kind=http&message=" + quote("answered with status 404")
    return {
        "overview": "/",
        "crawl: charts": crawl,
        "crawl: charts of all time": f"{crawl}?range=all",
        "crawl: hosts": f"{crawl}/hosts",
        "crawl: hosts, search": f"{crawl}/hosts?match=st1234",
        "crawl: hosts, idle": f"{crawl}/hosts?only=idle",
        "crawl: errors": f"{crawl}/errors",
        "crawl: errors, one group": f"{crawl}/errors?{group}",
        "crawl: errors, search without a match": f"{crawl}/errors?match=nothing-like-this",
        "crawl: requests": f"{crawl}/requests",
        "crawl: items": f"{crawl}/items",
        "crawl: items, search": f"{crawl}/items?match=nothing-like-this",
        "crawl: workers": f"{crawl}/workers",
        "crawl: settings": f"{crawl}/settings",
        "crawl: events": f"{crawl}/events",
        "queues": "/queues",
        "jobs": "/jobs",
        "schedules": "/schedules",
        "start a crawl": "/start",
        "users": "/users",
        "audit log": "/audit",
        "API: overview": "/api/v1/overview",
        "API: crawl": api,
        "API: history": f"{api}/history",
        "API: lanes": f"{api}/lanes",
        "API: dead letters": f"{api}/dead",
        "API: items": f"{api}/items",
        "API: workers": f"{api}/workers",
        "metrics": "/metrics",
    }


def time_visits(dashboard: Dashboard, addresses: Mapping[str, str], rounds: int, gap: float) -> dict[str, Any]:
    """Milliseconds until the whole answer of each address is there, in ``rounds`` rounds of random order.

    The dashboard shares results for a second. With ``gap`` seconds between two requests, about half of them find the
    numbers of the crawl in its memory, and none finds what only its own page shows.
    """
    times: dict[str, list[float]] = defaultdict(list)
    failed: dict[str, int] = {}
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=60)
    for _ in range(rounds):
        for name in random.sample(list(addresses), len(addresses)):
            time.sleep(gap)
            began = time.perf_counter()
            status, _ = dashboard.get(addresses[name], connection)
            times[name].append(1000 * (time.perf_counter() - began))
            if status != 200:
                failed[name] = status
    found: dict[str, Any] = {name: summarize(times[name]) for name in addresses}
    return found | ({"failed": failed} if failed else {})


def time_stories(dashboard: Dashboard, project: Project, urls: Mapping[str, list[str]], gap: float) -> dict[str, Any]:
    """Milliseconds until the page of a URL answers, and until it has the story, by the state of the URL."""
    found = {}
    for kind, each in urls.items():
        answers, stories = [], []
        for url in each:
            time.sleep(gap)
            path = f"/crawls/{project.store}/{CRAWL}/requests?url={quote(url, safe='')}"
            began = time.perf_counter()
            _, body = dashboard.get(path)
            answers.append(1000 * (time.perf_counter() - began))
            while _STORY not in body and time.perf_counter() - began < 60:
                time.sleep(0.1)
                _, body = dashboard.get(path)
            stories.append(1000 * (time.perf_counter() - began))
        found[kind] = {"page": summarize(answers), "story": summarize(stories)}
    return found


def summarize(times: list[float]) -> dict[str, float]:
    """The median, the 95th percentile and the maximum."""
    ordered = sorted(times)
    values = (statistics.median(ordered), ordered[math.ceil(0.95 * len(ordered)) - 1], ordered[-1])
    return {name: round(value, 1) for name, value in zip(("p50", "p95", "max"), values, strict=True)}
