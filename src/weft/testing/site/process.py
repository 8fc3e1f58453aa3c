"""Runs a site in a process of its own, so that its work is not counted as the crawler's.

The two talk over pipes: the first line of the child's output is ``ready <url>``; any line sent to
it makes it write its log and say ``flushed``; the end of its input ends it, so it does not
outlive a parent that was killed.
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

from weft.testing.site.log import LogReader, Record
from weft.testing.site.model import Site

_PATIENCE: Final = 10.0


class SiteProcess:
    """A site in a child process, from entering the block until leaving it.

    :raises RuntimeError: on entering, if the child could not start; its words are in the message.
    """

    def __init__(self, site: Site | None = None) -> None:
        self.site = site or Site()
        self.urls: tuple[str, ...] = ()
        self._folder = tempfile.TemporaryDirectory(prefix="weft-site-")
        self._log = Path(self._folder.name, "log.jsonl")
        self._reader = LogReader(self._log)
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        description = Path(self._folder.name, "site.json")
        description.write_bytes(msgspec.json.encode(self.site))
        errors = Path(self._folder.name, "errors.txt")
        command = [sys.executable, "-m", "weft.testing.site", "--site", str(description), "--log", str(self._log)]
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
        """Every request the site has seen up to now."""
        child = self._child
        if child and child.poll() is None:
            assert child.stdin
            assert child.stdout
            try:
                child.stdin.write("flush\n")
                child.stdin.flush()
                child.stdout.readline()
            except BrokenPipeError:
                pass  # it has just gone; what it wrote is there
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
