"""Standard output, in a process of its own because it is given away there."""

from __future__ import annotations

import subprocess
import sys
import textwrap

SCRIPT = """
    import sys
    from uttu.errors import SinkError
    from uttu.frontier.base import StoredItem
    from uttu.sinks.json import Stdout

    sink = Stdout()
    sink.open(b"")
    try:
        for n in range(int(sys.argv[1])):
            note = sink.write([StoredItem(n, str(n), '{"n":%d,"text":"ž"}'.encode() % n)])
            assert note
        sink.close(finished=True)
    except SinkError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
"""


def command(count: int) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(SCRIPT), str(count)]


def test_prints_lines() -> None:
    run = subprocess.run(command(2), capture_output=True, check=True)
    assert run.stdout.decode() == '{"n":0,"text":"ž"}\n{"n":1,"text":"ž"}\n'


def test_closed_reader_is_reported_in_one_line() -> None:
    with subprocess.Popen(command(100_000), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read().decode() == "Cannot write to standard output: its reader has closed it\n"
    assert process.returncode == 1


def test_a_full_device_is_told_in_one_line() -> None:
    with open("/dev/full", "wb") as full:
        run = subprocess.run(command(1), stdout=full, stderr=subprocess.PIPE, check=False)
    assert run.stderr.decode() == "Cannot write to standard output: No space left on device\n"
    assert run.returncode == 1
