"""One process of Redis or Valkey, a server or a sentinel: its file of settings, its port, its life.

The settings are in a file rather than on the command line because the server itself rewrites them:
a primary that a sentinel has made a replica must still be one after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.harness.servers.base import Server
from tests.harness.servers.errors import ServerError
from tests.harness.servers.ports import Port
from tests.harness.servers.process import ServerProcess
from tests.harness.servers.programs import Kind, redis_program
from tests.harness.servers.resp import Address, CommandRefused, Reply, ask


def quoted(text: str) -> str:
    """As a value in the file of settings, whose strings are those of JSON."""
    return json.dumps(text, ensure_ascii=False)


class Instance(Server):
    """Starts on entering the block and is gone on leaving it; in between it may be stopped, killed and restarted.

    ``settings`` are those of ``redis.conf``, with values as they are written there.

    :raises ServerMissing: when made, if the program is not installed.
    :raises ServerError: on entering or restarting, if it does not come to answer.
    """

    def __init__(self, kind: Kind, settings: Mapping[str, str], *, mode: str = "", password: str = "") -> None:
        super().__init__()
        self._port = Port()
        self.port = self._port.number
        self.password = password
        self._program = redis_program(kind)
        self._settings = dict(settings)
        self._mode = mode

    def _begin(self, running: ExitStack) -> None:
        running.callback(self._port.release)
        self._process = ServerProcess(f"{Path(self._program).name} at port {self.port}", self._command)
        running.callback(self._process.close)
        self.restart()

    @property
    def address(self) -> Address:
        """Where it listens."""
        return ("127.0.0.1", self.port)

    def ask(self, *words: str | int) -> Reply:
        """Its answer to one command, over a connection of its own.

        :raises Refused: it answered with an error.
        :raises OSError: it can't be reached or does not answer.
        """
        return ask(self.address, *words, password=self.password)

    def info(self, section: str) -> dict[str, str]:
        """What ``INFO`` says."""
        lines = str(self.ask("INFO", section)).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def _command(self, folder: Path) -> list[str]:
        file = folder / "redis.conf"
        if not file.exists():
            file.write_text("".join(f"{name} {value}\n" for name, value in self._all_settings(folder).items()))
        return [self._program, str(file), *([self._mode] if self._mode else [])]

    def _all_settings(self, folder: Path) -> dict[str, str]:
        return {"bind": "127.0.0.1", "port": str(self.port), "dir": str(folder), **self._settings}

    def _answers(self) -> bool:
        try:
            return self.ask("PING") == "PONG"
        except OSError:
            return False
        except CommandRefused as refusal:
            if str(refusal).startswith("LOADING"):
                return False
            raise ServerError(f"{self.process.name} answers, but refuses: {refusal}") from refusal
