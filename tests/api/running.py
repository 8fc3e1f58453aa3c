"""A dashboard that runs in a thread, on a port of its own, and a client that speaks plain HTTP to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response

from uttu.api.access import Session
from uttu.api.accounts import Accounts, Role
from uttu.api.context import Context
from uttu.api.server import DashboardServer, bind, make_server
from uttu.api.settings import load_config

PASSWORD = "correct horse"
# A page that is open, or its stream, says within this time that a server was killed.
SAID_SECONDS = 2.0
# For a machine that does other things as well.
SLACK_SECONDS = 1.0


class Answer(msgspec.Struct, frozen=True):
    """A response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Dashboard:
    """A running dashboard."""

    def __init__(self, server: DashboardServer, port: int) -> None:
        self.server = server
        self.port = port

    @property
    def context(self) -> Context:
        found: Context = self.server.config.app.state.context  # type: ignore[union-attr]
        return found

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        token: str = "",
        cookie: str = "",
    ) -> Answer:
        """Send a request. A body that is not bytes is sent as JSON."""
        sent = dict(headers or {})
        if token:
            sent.setdefault("Authorization", f"Bearer {token}")
        if cookie:
            sent["Cookie"] = cookie
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, sent)
            got = connection.getresponse()
            return Answer(got.status, got.headers, got.read())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Answer:
        return self.ask("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.ask("POST", path, {} if body is None else body, **options)

    def cookie_of(self, session: Session) -> str:
        """The cookie of a session, also of one that is not valid."""
        response = Response()
        from starlette.requests import HTTPConnection

        scope = {"type": "http", "scheme": "http", "path": "/", "headers": [], "server": ("127.0.0.1", self.port)}
        self.context.access.set_session(HTTPConnection(scope), response, session)
        return response.headers["set-cookie"].partition(";")[0]

    def log_in(self, name: str, password: str = PASSWORD) -> tuple[str, str]:
        """The cookie and the CSRF token of a new session."""
        answer = self.post("/api/v1/session:start", {"name": name, "password": password})
        assert answer.status == 200, answer.body
        return answer.headers["set-cookie"].partition(";")[0], answer.json["csrf"]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 20)


@contextlib.contextmanager
def run_dashboard(folder: Path, **flags: Any) -> Iterator[Dashboard]:
    """Run a dashboard over a folder until the block ends."""
    config = load_config(folder, {"port": find_free_port(), **flags}, environment={})
    server = make_server(config)
    listening = bind(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="dashboard")
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield Dashboard(server, config.settings.port)
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def add_users(folder: Path) -> dict[Role, str]:
    """A user for each role, whose name is the role; and a token for each, which is returned."""
    accounts = Accounts(load_config(folder, environment={}).access_file)
    for role in reversed(Role):
        accounts.add_user(str(role), PASSWORD, role)
    return {role: accounts.add_token(f"{role}-token", role) for role in Role}
