"""Run hostile hosts in another process, so that making a bomb does not delay the crawl whose time is measured."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from uttu.testing.site.hostile.model import Kind


class HostileProcess:
    """Hosts of the given kinds in a child process. A context manager.

    ``urls`` maps the names of kinds to the page to fetch. ``authority`` is the PEM file to trust.

    :raises RuntimeError: (on entering) the child did not start. The message contains its output.
    """

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.urls: dict[str, str] = {}
        self._kinds = kinds
        self._folder = tempfile.TemporaryDirectory(prefix="uttu-hostile-")
        self.authority = Path(self._folder.name, "authority.pem")
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if not self._kinds:
            return self
        names = [kind.name for kind in self._kinds]
        errors = Path(self._folder.name, "errors.txt")
        with errors.open("wb") as sink:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "uttu.testing.site.hostile", "--piped", "--folder", self._folder.name, *names],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
            )
        assert self._child.stdout
        ready = self._child.stdout.readline()
        if not ready:
            self._end()
            said = errors.read_text()
            self._folder.cleanup()
            raise RuntimeError(f"the hostile hosts did not start:\n{said}")
        self.urls = msgspec.json.decode(ready, type=dict[str, str])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._folder.cleanup()

    def _end(self) -> None:
        if self._child is None:
            return
        # A host may be sending something endless, so don't ask it to end.
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe:
                pipe.close()
