"""JSON Lines: the contract, and what happens when the file can't be written or is tampered with."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from uttu.errors import SinkError
from uttu.frontier.base import StoredItem
from uttu.sinks.base import Restart, Sink
from uttu.sinks.json import JsonLines
from uttu.testing.contracts.sinks import Row, SinkContract


def item(n: int, document: bytes = b'{"a":1}') -> StoredItem:
    return StoredItem(n, f"id-{n}", document)


class TestJsonLines(SinkContract):
    suffix = ".jsonl"

    def make(self, path: Path) -> Sink:
        return JsonLines(path)

    def read(self, path: Path) -> list[Row]:
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def test_the_bytes_are_those_that_were_stored(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "out.jsonl")
    sink.open(b"")
    note = sink.write([item(1, '{"a": "ž"}'.encode()), item(2, b"[1,\n 2]"), item(3, b"7")])
    sink.close(finished=True)
    expected = '{"a": "ž"}\n[1,  2]\n7\n'.encode()
    assert (tmp_path / "out.jsonl").read_bytes() == expected
    assert note == str(len(expected)).encode()


@pytest.mark.parametrize("content", [b"", b'{"a":1}', b"x" * 100], ids=["emptied", "shorter", "another file"])
def test_changed_file_restarts_the_sink(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "out.jsonl"
    sink = JsonLines(path)
    sink.open(b"")
    note = sink.write([item(1), item(2)])
    sink.close(finished=False)
    path.write_bytes(content)
    with pytest.raises(Restart):
        sink.open(note)


@pytest.mark.parametrize("harm", ["deleted", "moved", "emptied"])
def test_changed_open_file_restarts_the_sink(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "out.jsonl"
    sink = JsonLines(path)
    sink.open(b"")
    sink.write([item(1)])
    match harm:
        case "deleted":
            path.unlink()
        case "moved":
            path.rename(tmp_path / "elsewhere")
        case _:
            path.write_bytes(b"")
    with pytest.raises(Restart):
        sink.write([item(2)])
    sink.open(b"")
    sink.write([item(1), item(2)])
    sink.close(finished=True)
    assert path.read_bytes() == b'{"a":1}\n' * 2


def test_failed_write_is_reported_and_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.jsonl"
    sink = JsonLines(path)
    sink.open(b"")
    note = sink.write([item(1)])

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(SinkError) as caught:
            sink.write([item(2)])
    sink.close(finished=False)
    message = str(caught.value)
    assert str(path) in message
    assert "No space left on device" in message
    assert "Free some space" in message
    assert "no item is lost" in message
    assert path.read_bytes() == b'{"a":1}\n'

    sink.open(note)
    sink.write([item(2)])
    sink.close(finished=True)
    assert path.read_bytes() == b'{"a":1}\n' * 2


def test_a_real_limit_leaves_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    script = f"""
        import resource
        from uttu.errors import SinkError
        from uttu.frontier.base import StoredItem
        from uttu.sinks.json import JsonLines

        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        sink = JsonLines({str(path)!r})
        sink.open(b"")
        try:
            for n in range(1000):
                sink.write([StoredItem(n, str(n), b'{{"n":"' + b"x" * 90 + b'"}}')] * 7)
        except SinkError as error:
            print(error)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert str(path) in run.stdout
    assert "File too large" in run.stdout
    lines = path.read_bytes().split(b"\n")
    assert lines[-1] == b""
    assert len(lines) - 1 == 10_000 // (7 * 99) * 7


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    sink = JsonLines(path)
    sink.open(b"")
    sink.write([item(1)])
    script = f"""
        from uttu.errors import SinkError
        from uttu.sinks.json import JsonLines
        try:
            JsonLines({str(path)!r}).open(b"")
        except SinkError as error:
            print(error)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    sink.close(finished=True)
    assert "another process is writing it" in run.stdout
    assert path.read_bytes() == b'{"a":1}\n'


def test_only_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.jsonl")
    with pytest.raises(SinkError, match="not a regular file"):
        JsonLines(tmp_path / "out.jsonl").open(b"")
