"""The contract of sinks whose output can be read back.

A test file supplies the sink and a way to read its output, and inherits the rest::

    class TestCsv(SinkContract):
        suffix = ".csv"

        def make(self, path: Path) -> Sink:
            return Csv(path)

        def read(self, path: Path) -> list[dict[str, str]]:
            with path.open(newline="") as file:
                return list(csv.DictReader(file))

All values in the items are strings, so that a format without types can pass. A crash is simulated by leaving a sink
open and continuing with a new one from an older state.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from uttu.errors import SinkError
from uttu.frontier.base import StoredItem
from uttu.sinks.base import Restart, Sink

Row = dict[str, str]

_values = st.text(st.characters(codec="utf-8"), max_size=12)
_plans = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from(["counted", "not counted", "torn", "reopened"])),
    min_size=1,
    max_size=8,
)


class SinkContract(ABC):
    """Inherit as ``Test…`` and supply ``suffix``, ``make`` and ``read``."""

    suffix = ""

    @abstractmethod
    def make(self, path: Path) -> Sink:
        """Return a new sink for this path, as a new process would."""

    @abstractmethod
    def read(self, path: Path) -> list[Row]:
        """Return the rows of the output in order, without columns that the sink adds."""

    def tear(self, path: Path) -> None:
        """Append half a record, as an interrupted write does."""
        with path.open("ab") as file:
            file.write(b'{"half":')

    def lose(self, path: Path) -> None:
        """Delete the file that the sink would resume from."""
        path.unlink()

    def path(self, folder: Path) -> Path:
        return folder / f"out{self.suffix}"

    def test_name_is_stable_and_tells_outputs_apart(self, tmp_path: Path) -> None:
        one, again, other = (self.make(tmp_path / f"{stem}{self.suffix}") for stem in ("a", "a", "b"))
        assert one.name == again.name != other.name

    def test_writes_in_order(self, tmp_path: Path) -> None:
        rows = _rows(7)
        self.complete(self.path(tmp_path), [rows[:3], rows[3:]])
        assert self.read(self.path(tmp_path)) == rows

    def test_makes_the_folders(self, tmp_path: Path) -> None:
        path = self.path(tmp_path / "new" / "folder")
        self.complete(path, [_rows(1)])
        assert self.read(path) == _rows(1)

    def test_an_empty_crawl_leaves_an_empty_output(self, tmp_path: Path) -> None:
        self.complete(self.path(tmp_path), [])
        assert self.path(tmp_path).exists()
        assert self.read(self.path(tmp_path)) == []

    def test_keeps_any_text(self, tmp_path: Path) -> None:
        texts = ["žluťoučký 🐎 كلب", 'a,"b"\n\r\nc\rd\te', "'; DROP TABLE items; --", "", " ", "=1+1", "\u2028\ufeff"]
        rows = [{"n": str(n), "text": text, "schlüssel, “x”": "ß"} for n, text in enumerate(texts)]
        self.complete(self.path(tmp_path), [rows])
        assert self.read(self.path(tmp_path)) == rows

    def test_goes_on_where_it_stopped(self, tmp_path: Path) -> None:
        path, rows = self.path(tmp_path), _rows(6)
        with self.opened(path) as sink:
            note = sink.write(_items(rows[:2]))
        with self.opened(path, note) as sink:
            note = sink.write(_items(rows[2:4], after=2))
        with self.opened(path, note, finished=True) as sink:
            sink.write(_items(rows[4:], after=4))
        assert self.read(path) == rows

    def test_an_interrupted_run_leaves_a_readable_output(self, tmp_path: Path) -> None:
        with self.opened(self.path(tmp_path)) as sink:
            sink.write(_items(_rows(3)))
        assert self.read(self.path(tmp_path)) == _rows(3)

    def test_undoes_what_did_not_count(self, tmp_path: Path) -> None:
        path, rows = self.path(tmp_path), _rows(5)
        with self.left_open(path) as killed:
            note = killed.write(_items(rows[:2]))
            killed.write(_items(rows[2:4], after=2))
            self.tear(path)
            with self.opened(path, note, finished=True) as sink:
                sink.write(_items(rows[2:], after=2))
            assert self.read(path) == rows

    def test_undoes_what_was_written_before_the_first_note(self, tmp_path: Path) -> None:
        path, rows = self.path(tmp_path), _rows(3)
        with self.left_open(path) as killed:
            killed.write(_items(rows[:2]))
            with self.opened(path, finished=True) as sink:
                sink.write(_items(rows))
            assert self.read(path) == rows

    def test_a_lost_output_is_asked_for_again(self, tmp_path: Path) -> None:
        path, rows = self.path(tmp_path), _rows(4)
        with self.opened(path) as sink:
            note = sink.write(_items(rows))
        self.lose(path)
        sink = self.make(path)
        assert _restarts(sink, note)
        sink.open(b"")
        sink.write(_items(rows))
        sink.close(finished=True)
        assert self.read(path) == rows

    def test_a_note_of_something_else_is_no_note(self, tmp_path: Path) -> None:
        self.complete(self.path(tmp_path), [_rows(1)])
        assert _restarts(self.make(self.path(tmp_path)), b"\xffnot a note")

    def test_a_new_crawl_replaces_the_old_output(self, tmp_path: Path) -> None:
        self.complete(self.path(tmp_path), [_rows(5)])
        fresh = [{"other": "columns"}]
        self.complete(self.path(tmp_path), [fresh])
        assert self.read(self.path(tmp_path)) == fresh

    def test_a_finished_output_can_be_gone_on_with(self, tmp_path: Path) -> None:
        path, rows = self.path(tmp_path), _rows(4)
        with self.opened(path, finished=True) as sink:
            note = sink.write(_items(rows[:2]))
        sink = self.make(path)
        done = 0 if _restarts(sink, note) else 2
        if done == 0:
            sink.open(b"")
        sink.write(_items(rows[done:], after=done))
        sink.close(finished=True)
        assert self.read(path) == rows

    def test_many_items(self, tmp_path: Path) -> None:
        rows = _rows(5000)
        self.complete(self.path(tmp_path), [rows[at : at + 700] for at in range(0, 5000, 700)])
        assert self.read(self.path(tmp_path)) == rows

    def test_close_without_open_does_nothing(self, tmp_path: Path) -> None:
        self.make(self.path(tmp_path)).close(finished=False)
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_in_its_place_is_told(self, tmp_path: Path) -> None:
        self.path(tmp_path).mkdir()
        assert str(self.path(tmp_path)) in self.refusal(self.path(tmp_path))

    def test_a_file_in_place_of_a_folder_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        path = self.path(tmp_path / "file")
        assert str(path.parent) in self.refusal(path)

    def test_exact_through_crashes(self) -> None:
        # The property is a nested function: Hypothesis would treat an inherited one as a single test.
        @given(plan=_plans, texts=st.lists(_values, min_size=40, max_size=40))
        @settings(max_examples=60, deadline=None)
        def exact(plan: list[tuple[int, str]], texts: list[str]) -> None:
            rows = [{"n": str(n), "text": text} for n, text in enumerate(texts)]
            with tempfile.TemporaryDirectory() as folder:
                path = self.path(Path(folder))
                self.crash_through(path, rows, plan)
                assert self.read(path) == rows

        exact()

    def crash_through(self, path: Path, rows: Sequence[Row], plan: Sequence[tuple[int, str]]) -> None:
        """Write ``rows`` in batches of the planned sizes with the planned outcomes, then the rest."""
        with contextlib.ExitStack() as killed:
            note, done = b"", 0
            sink = killed.enter_context(self.left_open(path))
            for size, fate in plan:
                new = sink.write(_items(rows[done : done + size], after=done))
                if fate in ("counted", "reopened"):
                    note, done = new, done + size
                if fate == "torn":
                    self.tear(path)
                if fate != "counted":
                    sink = killed.enter_context(self.left_open(path, note))
            if done < len(rows):
                sink.write(_items(rows[done:], after=done))
            sink.close(finished=True)

    @contextlib.contextmanager
    def opened(self, path: Path, state: bytes = b"", finished: bool = False) -> Iterator[Sink]:
        sink = self.make(path)
        sink.open(state)
        try:
            yield sink
        finally:
            sink.close(finished)

    @contextlib.contextmanager
    def left_open(self, path: Path, state: bytes = b"") -> Iterator[Sink]:
        """A sink whose process is killed. It is closed only at the end, to release resources."""
        with contextlib.suppress(SinkError), self.opened(path, state) as sink:
            yield sink

    def complete(self, path: Path, batches: Sequence[Sequence[Row]]) -> None:
        """Write all batches of a finished crawl."""
        with self.opened(path, finished=True) as sink:
            done = 0
            for batch in batches:
                sink.write(_items(batch, after=done))
                done += len(batch)

    def refusal(self, path: Path) -> str:
        sink = self.make(path)
        try:
            sink.open(b"")
        except SinkError as error:
            return str(error)
        finally:
            with contextlib.suppress(SinkError):
                sink.close(finished=False)
        raise AssertionError(f"{path} was opened")


def _rows(count: int) -> list[Row]:
    return [{"n": str(n), "text": f"item {n}"} for n in range(count)]


def _items(rows: Sequence[Row], after: int = 0) -> list[StoredItem]:
    return [
        StoredItem(position, f"{position:016x}-0", json.dumps(row, ensure_ascii=False).encode())
        for position, row in enumerate(rows, after + 1)
    ]


def _restarts(sink: Sink, note: bytes) -> bool:
    try:
        sink.open(note)
    except Restart:
        return True
    return False
