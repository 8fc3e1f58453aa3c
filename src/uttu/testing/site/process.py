"""Run a site in a separate process, so that its CPU time does not count as the crawler's.

Both talk over pipes. The first line of the child's output is ``ready <url>``. For each line of input, the child flushes
its log and prints ``flushed``. It ends when its input ends, so it does not outlive a parent that was killed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import msgspec

from uttu.testing.site.log import LogReader, Record
from uttu.testing.site.model import Site

_PATIENCE: Final = 10.0  # seconds between SIGTERM and SIGKILL


class SiteProcess:
    """A site in a child process. A context manager.

    :raises RuntimeError: (on entering) the child did not start. The message contains its output.
    """

    def __init__(self, site: Site | None = None) -> None:
        self.site = site or Site()
        self.urls: tuple[str, ...] = ()
        self._folder = tempfile.TemporaryDirectory(prefix="uttu-site-")
        self._log = Path(self._folder.name, "log.jsonl")
        self._reader = LogReader(self._log)
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        description = Path(self._folder.name, "site.json")
        description.write_bytes(msgspec.json.encode(self.site))
        errors = Path(self._folder.name, "errors.txt")
        command = [sys.executable, "-m", "uttu.testing.site", "--site", str(description), "--log", str(self._log)]
        with errors.open("wb") as sink:
            child = self._child = subprocess.Popen(
                [*command, "--piped"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True
            )
        assert child.stdout
        ready = child.stdout.readline().split()
        if ready[:1] != ["ready"]:
            self._end(child)
            said = errors.read_text()
            self._folder.cleanup()
            raise RuntimeError(f"the test site did not start:\n{said}")
        port = urlsplit(ready[1]).port
        assert port
        self.urls = self.site.urls(port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child:
            self._end(self._child)
        self._folder.cleanup()

    @property
    def url(self) -> str:
        """The root of host 0."""
        return self.urls[0]

    @property
    def pid(self) -> int:
        assert self._child
        return self._child.pid

    def records(self) -> list[Record]:
        """All requests that the site has received so far."""
        child = self._child
        if child and child.poll() is None:
            assert child.stdin
            assert child.stdout
            try:
                child.stdin.write("flush\n")
                child.stdin.flush()
                child.stdout.readline()
            except BrokenPipeError:
                pass  # the child has just ended; its log file is complete
        return self._reader.records()

    @staticmethod
    def _end(child: subprocess.Popen[str]) -> None:
        child.terminate()
        try:
            child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()
