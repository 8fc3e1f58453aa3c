"""What all servers of one's own have in common: they live within a block, and may be killed and restarted in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.harness.servers.errors import ServerError
from tests.harness.servers.process import ServerProcess


class Life(ABC):
    """Runs while its block is entered. What has begun is ended, also if the rest could not begin."""

    def __init__(self) -> None:
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self._begin(starting)
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it and remove its data; again does no harm."""
        self._running.close()

    @abstractmethod
    def _begin(self, running: ExitStack) -> None:
        """Start everything; ``running`` is told how each part ends."""


class Server(Life):
    """A life that is one process. A subclass makes ``_process``, and knows when it answers."""

    def __init__(self) -> None:
        super().__init__()
        self._process: ServerProcess | None = None

    @property
    def process(self) -> ServerProcess:
        """:raises ServerError: outside the block."""
        if self._process is None:
            raise ServerError(f"a server must be entered first: `with {type(self).__name__}() as server:`")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def restart(self) -> None:
        """On the same ports, with the data it has on disk; stops it first if it runs."""
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

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it serves."""
