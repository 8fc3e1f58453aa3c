"""One process of Redis or Valkey, a server or a sentinel: its file of settings, its port, its life.

The settings are in a file rather than on the command line because the server itself rewrites them:
a primary that a sentinel has made a replica must still be one after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from weft.testing.servers.errors import ServerError
from weft.testing.servers.ports import Port
from weft.testing.servers.process import ServerProcess
from weft.testing.servers.programs import Kind, redis_program
from weft.testing.servers.resp import Address, Refused, Reply, ask


def quoted(text: str) -> str:
    """As a value in the file of settings, whose strings are those of JSON."""
    return json.dumps(text, ensure_ascii=False)


class Instance:
    """Starts on entering the block and is gone on leaving it; in between it may be stopped, killed and restarted.

    ``settings`` are those of ``redis.conf``, with values as they are written there.

    :raises ServerMissing: when made, if the program is not installed.
    :raises ServerError: on entering or restarting, if it does not come to answer.
    """

    def __init__(self, kind: Kind, settings: Mapping[str, str], *, mode: str = "", password: str = "") -> None:
        self._port = Port()
        self.port = self._port.number
        self.password = password
        self._program = redis_program(kind)
        self._settings = dict(settings)
        self._mode = mode
        self._process: ServerProcess | None = None

    def __enter__(self) -> Self:
        self._process = ServerProcess(f"{Path(self._program).name} at port {self.port}", self._command)
        try:
            self.restart()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> ServerProcess:
        """:raises ServerError: outside the block."""
        if self._process is None:
            raise ServerError("a server must be entered first: `with RedisServer() as server:`")
        return self._process

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

    def restart(self) -> None:
        """On the same port, with the data it has on disk; stops it first if it runs."""
        self.process.stop()
        self.process.start(self._answers)

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self.process.stop()

    def kill(self) -> None:
        """kill -9; what is not on disk is lost."""
        self.process.kill()

    def pause(self) -> None:
        """Let it stand still: connections stay open, nothing is answered."""
        self.process.pause()

    def resume(self) -> None:
        """Let it go on after :meth:`pause`."""
        self.process.resume()

    def close(self) -> None:
        """End it and remove its data; again does no harm."""
        if self._process:
            self._process.close()
        self._port.release()

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
        except Refused as refusal:
            if str(refusal).startswith("LOADING"):
                return False
            raise ServerError(f"{self.process.name} answers, but refuses: {refusal}") from refusal
