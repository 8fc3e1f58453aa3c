"""The drain: order of sink and cursor, restarts, failures, and exactness through crashes."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Unpack

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uttu.engine import exporter as drain_module
from uttu.engine import sink_writer
from uttu.engine.exporter import Exporter, export
from uttu.errors import ConfigError, ItemsTrimmed, SinkError, StoreError
from uttu.frontier.base import Cursor, StoredItem, Trimmed
from uttu.model.facts import CrawlFacts, FactChanges
from uttu.sinks.base import Restart, Sink
from uttu.sinks.csv import Csv
from uttu.sinks.json import JsonLines


class MemoryOutbox:
    """The contract in its smallest form, and the ledger's: claims last until a test ends them.

    ``before_advance`` may raise, to crash at the worst moment.
    """

    def __init__(self, count: int = 0) -> None:
        self.stored: list[StoredItem] = []
        self.cursors: dict[str, Cursor] = {}
        self.asked: list[int] = []
        self.roles: dict[str, str] = {}
        self.noted = CrawlFacts()
        self.claims = 0
        self.gone = Trimmed()
        self.before_advance: Callable[[str, Cursor], None] = lambda sink, cursor: None
        self.add(count)

    def add(self, count: int) -> None:
        # Positions have gaps, as those of a real store may.
        for n in range(len(self.stored), len(self.stored) + count):
            self.stored.append(StoredItem(3 * n + 1, f"id-{n}", b'{"n":%d}' % n))

    async def latest(self, limit: int, before: int = 0) -> list[StoredItem]:
        return [item for item in reversed(self.stored) if not before or item.position < before][:limit]

    def add_more(self, count: int) -> None:
        """After some have been removed."""
        last = (self.stored[-1].position - 1) // 3
        for n in range(last + 1, last + 1 + count):
            self.stored.append(StoredItem(3 * n + 1, f"id-{n}", b'{"n":%d}' % n))

    async def items(self, after: int, limit: int) -> list[StoredItem]:
        self.asked.append(limit)
        if after < self.gone.position:
            raise ItemsTrimmed("removed")
        return [item for item in self.stored if item.position > after][:limit]

    async def cursor(self, sink: str) -> Cursor:
        return self.cursors.get(sink, Cursor())

    async def advance(self, sink: str, cursor: Cursor, owner: str) -> bool:
        if self.roles.get(f"drain {sink}") != owner:
            return False
        self.before_advance(sink, cursor)
        self.cursors[sink] = cursor
        return True

    async def trim(self, sinks: Sequence[str], keep: int) -> bool:
        if any(role.startswith("whole ") for role in self.roles):
            return False
        least = min((self.cursors.get(sink, Cursor()).position for sink in sinks), default=0)
        before = len(self.stored)
        while len(self.stored) > keep and self.stored[0].position <= least:
            self.gone = Trimmed(self.gone.count + 1, self.stored.pop(0).position)
        return before > len(self.stored)

    async def trimmed(self) -> Trimmed:
        return self.gone

    async def facts(self) -> CrawlFacts:
        return self.noted

    async def note(self, **changes: Unpack[FactChanges]) -> None:
        self.noted = msgspec.structs.replace(self.noted, **changes)

    async def report(self, worker: str, report: bytes) -> None:
        raise NotImplementedError

    async def reports(self) -> dict[str, tuple[float, bytes]]:
        return {}

    async def claim(self, role: str, owner: str, seconds: float) -> bool:
        self.claims += 1
        return self.roles.setdefault(role, owner) == owner

    async def release(self, role: str, owner: str) -> None:
        if self.roles.get(role) == owner:
            del self.roles[role]

    async def claimed(self) -> dict[str, str]:
        return self.roles


class MemorySink:
    """Keeps ids; its note is how many. ``events`` tells what was called."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.ids: list[str] = []
        self.events: list[str] = []
        self.on_open: Callable[[bytes], None] = lambda state: None
        self.on_write: Callable[[Sequence[StoredItem]], None] = lambda items: None

    def open(self, state: bytes) -> None:
        self.events.append(f"open {state.decode()}".strip())
        self.on_open(state)
        del self.ids[int(state or b"0") :]

    def write(self, items: Sequence[StoredItem]) -> bytes:
        self.events.append("write")
        self.ids += [item.id for item in items]
        self.on_write(items)
        return b"%d" % len(self.ids)

    def close(self, finished: bool) -> None:
        self.events.append("finished" if finished else "closed")


def draining(outbox: MemoryOutbox, sinks: Sequence[Sink], owner: str = "me") -> Exporter:
    return Exporter(outbox, sinks, outbox, owner)


def ids(outbox: MemoryOutbox) -> list[str]:
    return [item.id for item in outbox.stored]


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def restart_once(sink: MemorySink, at: str) -> None:
    def once(items: Sequence[StoredItem]) -> None:
        if items[0].id == at:
            sink.on_write = lambda items: None
            raise Restart

    sink.on_write = once


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 — the condition is in another thread
            await asyncio.sleep(0.001)


async def test_finish_moves_everything_in_order() -> None:
    outbox, one, other = MemoryOutbox(2500), MemorySink("a"), MemorySink("b")
    drain = draining(outbox, [one, other])
    await drain.finish(finished=True)
    for sink in (one, other):
        assert sink.ids == ids(outbox)
        assert sink.events[0] == "open"
        assert sink.events[-1] == "finished"
        assert outbox.cursors[sink.name] == Cursor(outbox.stored[-1].position, b"2500")
    assert max(outbox.asked) == sink_writer.BATCH_ITEMS


async def test_run_moves_items_as_they_come_and_stops() -> None:
    outbox, sink, stop = MemoryOutbox(1), MemorySink(), asyncio.Event()
    drain = draining(outbox, [sink])
    await drain.open()
    running = asyncio.create_task(drain.run(stop))
    await until(lambda: len(sink.ids) == 1)
    outbox.add(1)
    await until(lambda: len(sink.ids) == 2)
    stop.set()
    await running
    outbox.add(1)
    await drain.finish(finished=False)
    assert sink.ids == ids(outbox)
    assert sink.events == ["open", "write", "write", "write", "closed"]


async def test_a_stop_does_not_wait_for_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "INTERVAL_SECONDS", 3600)
    outbox, sink, stop = MemoryOutbox(1), MemorySink(), asyncio.Event()
    drain = draining(outbox, [sink])
    running = asyncio.create_task(drain.run(stop))
    await until(lambda: len(sink.ids) == 1)
    await asyncio.sleep(0.01)
    stop.set()
    async with asyncio.timeout(5):
        await running
    await drain.finish(finished=True)


async def test_without_sinks_it_only_waits() -> None:
    drain, stop = draining(MemoryOutbox(5), []), asyncio.Event()
    await drain.open()
    running = asyncio.create_task(drain.run(stop))
    stop.set()
    await running
    await drain.finish(finished=True)


async def test_an_empty_crawl_still_makes_its_output(tmp_path: Path) -> None:
    drain = draining(MemoryOutbox(), [JsonLines(tmp_path / "out.jsonl")])
    await drain.finish(finished=True)
    assert (tmp_path / "out.jsonl").read_bytes() == b""


async def test_resumes_at_the_cursor() -> None:
    outbox, sink = MemoryOutbox(3), MemorySink()
    await draining(outbox, [sink]).finish(finished=False)
    outbox.add(2)
    sink.events.clear()
    await draining(outbox, [sink]).finish(finished=True)
    assert sink.ids == ids(outbox)
    assert sink.events == ["open 3", "write", "finished"]


async def test_an_empty_note_means_from_the_start() -> None:
    outbox, sink = MemoryOutbox(3), MemorySink()
    outbox.cursors[sink.name] = Cursor(outbox.stored[1].position, b"")
    await draining(outbox, [sink]).finish(finished=True)
    assert sink.ids == ids(outbox)


async def test_the_sink_has_the_batch_before_the_cursor_says_so() -> None:
    outbox, sink = MemoryOutbox(2500), MemorySink()

    def check(_: str, cursor: Cursor) -> None:
        assert sink.ids[-1] == next(item.id for item in outbox.stored if item.position == cursor.position)

    outbox.before_advance = check
    await draining(outbox, [sink]).finish(finished=True)
    assert sink.ids == ids(outbox)


async def test_a_cursor_that_can_not_be_stored_is_no_progress() -> None:
    outbox, sink = MemoryOutbox(3), MemorySink()

    def refuse(sink: str, cursor: Cursor) -> None:
        outbox.before_advance = lambda sink, cursor: None
        raise StoreError("disk full")

    outbox.before_advance = refuse
    drain = draining(outbox, [sink])
    with pytest.raises(StoreError):
        await drain.run(asyncio.Event())
    await drain.finish(finished=True)
    assert sink.ids == ids(outbox)
    assert sink.events == ["open", "write", "open", "write", "finished"]


async def test_a_store_that_fails_at_the_end_still_gets_sinks_closed() -> None:
    outbox, sink = MemoryOutbox(3), MemorySink()
    outbox.before_advance = raising(StoreError("disk full"))
    with pytest.raises(StoreError):
        await draining(outbox, [sink]).finish(finished=True)
    assert sink.events == ["open", "write", "closed"]


async def test_a_run_cancelled_in_the_middle_of_a_write() -> None:
    outbox, sink = MemoryOutbox(3), MemorySink()
    writing, go_on = threading.Event(), threading.Event()

    def block(_: Sequence[StoredItem]) -> None:
        writing.set()
        go_on.wait(5)

    sink.on_write = block
    drain = draining(outbox, [sink])
    running = asyncio.create_task(drain.run(asyncio.Event()))
    await until(writing.is_set)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    finishing = asyncio.create_task(drain.finish(finished=True))
    await asyncio.sleep(0.01)
    assert sink.events == ["open", "write"]
    go_on.set()
    await finishing
    assert sink.ids == ids(outbox)
    assert sink.events == ["open", "write", "open", "write", "finished"]


async def test_a_restart_hands_over_everything_again() -> None:
    outbox, sink = MemoryOutbox(250), MemorySink()
    cursors: list[int] = []
    outbox.before_advance = lambda sink, cursor: cursors.append(cursor.position)
    restart_once(sink, at="id-100")
    await draining(outbox, [sink]).finish(finished=True)
    assert sink.ids == ids(outbox)
    assert cursors[:2] == [outbox.stored[99].position, 0]
    assert sink.events == ["open", "write", "write", "open", "write", "finished"]


async def test_a_restart_on_opening() -> None:
    outbox, sink = MemoryOutbox(5), MemorySink()
    outbox.cursors[sink.name] = Cursor(outbox.stored[2].position, b"3")

    def gone(state: bytes) -> None:
        if state:
            raise Restart

    sink.on_open = gone
    await draining(outbox, [sink]).finish(finished=True)
    assert sink.ids == ids(outbox)


async def test_restarts_without_end_are_an_error() -> None:
    writer, opener = MemorySink("writer"), MemorySink("opener")
    writer.on_write = opener.on_open = raising(Restart("no luck"))
    with pytest.raises(SinkError, match="writer has to start anew again and again: no luck"):
        await draining(MemoryOutbox(5), [writer]).finish(finished=True)
    with pytest.raises(SinkError, match="opener can't be started anew: no luck"):
        await draining(MemoryOutbox(5), [opener]).finish(finished=True)


async def test_a_csv_with_keys_that_come_late(tmp_path: Path) -> None:
    outbox = MemoryOutbox(500)
    for n in (150, 350, 499):
        item = outbox.stored[n]
        outbox.stored[n] = StoredItem(item.position, item.id, b'{"n":%d,"late%d":1}' % (n, n))
    await draining(outbox, [Csv(tmp_path / "out.csv")]).finish(finished=True)
    rows = (tmp_path / "out.csv").read_text().splitlines()
    assert rows[0] == "n,late150,late350,late499"
    assert rows[351] == "350,,1,"
    assert [row.split(",")[0] for row in rows[1:]] == [str(n) for n in range(500)]


async def test_one_sink_fails_and_the_others_are_complete() -> None:
    outbox, bad, good = MemoryOutbox(2500), MemorySink("bad"), MemorySink("good")

    def fail(items: Sequence[StoredItem]) -> None:
        if items[0].id != "id-0":
            raise SinkError("disk full")

    bad.on_write = fail
    drain, stop = draining(outbox, [bad, good]), asyncio.Event()
    running = asyncio.create_task(drain.run(stop))
    await until(lambda: len(good.ids) == 2500)
    assert [str(error) for error in drain.errors] == ["disk full"]
    stop.set()
    await running
    with pytest.raises(SinkError, match="disk full"):
        await drain.finish(finished=True)
    assert good.ids == ids(outbox)
    assert good.events[-1] == "finished"
    assert bad.events == ["open", "write", "write", "closed"]

    bad.on_write = lambda items: None
    await draining(outbox, [bad, good]).finish(finished=True)
    assert bad.ids == ids(outbox)


async def test_any_error_of_a_sink_is_its_own() -> None:
    bad, worse, good = MemorySink("bad"), MemorySink("worse"), MemorySink("good")
    bad.on_write = worse.on_open = raising(KeyError("oops"))
    with pytest.raises(SinkError, match="bad failed: KeyError: 'oops'\nthe output worse failed"):
        await draining(MemoryOutbox(5), [bad, worse, good]).finish(finished=True)
    assert good.events == ["open", "write", "finished"]


async def test_an_output_that_can_not_be_opened_is_told_at_once(tmp_path: Path) -> None:
    outbox, good = MemoryOutbox(5), MemorySink()
    drain = draining(outbox, [good, JsonLines(tmp_path)])
    with pytest.raises(SinkError, match="directory"):
        await drain.open()
    assert good.events == ["open", "closed"]
    with pytest.raises(SinkError, match="directory"):
        await drain.finish(finished=True)
    assert outbox.cursors == {}


async def test_an_output_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(ConfigError, match="twice"):
        draining(MemoryOutbox(), [JsonLines(path), JsonLines(path)])


async def test_large_items_make_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_writer, "BATCH_BYTES", 10_000)
    outbox, sink = MemoryOutbox(), MemorySink()
    outbox.stored = [StoredItem(n, f"id-{n}", b'"' + b"x" * 2998 + b'"') for n in range(1, 300)]
    await draining(outbox, [sink]).finish(finished=True)
    assert sink.ids == ids(outbox)
    assert set(outbox.asked[1:]) == {3}


async def test_export_does_not_touch_cursors() -> None:
    outbox, sink = MemoryOutbox(2500), MemorySink()
    outbox.cursors[sink.name] = Cursor(outbox.stored[9].position, b"10")
    restart_once(sink, at="id-100")
    assert await export(outbox, sink, outbox, "me") == 2500
    assert sink.ids == ids(outbox)
    assert sink.events[-1] == "finished"
    assert outbox.cursors == {sink.name: Cursor(outbox.stored[9].position, b"10")}


async def test_export_that_fails() -> None:
    sink = MemorySink()
    sink.on_write = raising(SinkError("disk full"))
    with pytest.raises(SinkError, match="disk full"):
        await export(MemoryOutbox(5), sink, MemoryOutbox(), "me")
    assert sink.events[-1] == "closed"


async def drained(outbox: MemoryOutbox, *sinks: Sink, keep: int) -> None:
    drain = Exporter(outbox, sinks, outbox, "me", keep=keep)
    await drain.open()
    await drain.finish(True)


async def test_items_that_all_sinks_have_are_removed() -> None:
    outbox, fast, slow = MemoryOutbox(2500), MemorySink("fast"), MemorySink("slow")
    slow.on_write = raising(SinkError("disk full"))
    with pytest.raises(SinkError, match="disk full"):
        await drained(outbox, fast, slow, keep=10)
    assert (len(outbox.stored), outbox.gone.count) == (2500, 0)
    slow.on_write = lambda items: None
    await drained(outbox, fast, slow, keep=10)
    assert (len(outbox.stored), outbox.gone.count) == (10, 2490)
    assert len(fast.ids) == len(slow.ids) == 2500


@pytest.mark.parametrize("keep", [0, 2500])
async def test_items_that_are_to_be_kept_stay(keep: int) -> None:
    outbox = MemoryOutbox(2500)
    await drained(outbox, MemorySink(), keep=keep)
    assert len(outbox.stored) == 2500


async def test_without_an_output_items_stay() -> None:
    outbox = MemoryOutbox(2500)
    await drained(outbox, keep=10)
    assert len(outbox.stored) == 2500


async def test_an_output_that_may_need_all_items_keeps_them(tmp_path: Path) -> None:
    outbox = MemoryOutbox(2500)
    await drained(outbox, Csv(tmp_path / "out.csv"), JsonLines(tmp_path / "out.jsonl"), keep=10)
    assert len(outbox.stored) == 2500
    assert not outbox.roles


async def test_a_new_output_of_which_items_were_removed_is_refused(tmp_path: Path) -> None:
    outbox, file = MemoryOutbox(100), tmp_path / "new.jsonl"
    await drained(outbox, MemorySink(), keep=10)
    file.write_text("someone else's\n")
    new = JsonLines(file)
    with pytest.raises(SinkError, match=r"new\.jsonl can't be made .* 90 items have been removed .* keep_items=0"):
        await drained(outbox, MemorySink(), new, keep=10)
    with pytest.raises(SinkError, match="90 items have been removed"):
        await export(outbox, new, outbox, "me")
    assert file.read_text() == "someone else's\n"
    assert not outbox.roles


@pytest.mark.parametrize("when", ["open", "write"])
async def test_an_output_that_has_to_start_anew_after_items_were_removed(when: str, tmp_path: Path) -> None:
    outbox, file = MemoryOutbox(100), tmp_path / "out.jsonl"
    await drained(outbox, JsonLines(file), keep=10)
    outbox.add_more(50)
    cursor = outbox.cursors[str(file)]
    left = file.read_text()[:500]
    drain = Exporter(outbox, [JsonLines(file)], outbox, "me", keep=10)
    if when == "write":
        await drain.open()
    file.unlink()
    file.write_text(left)
    with pytest.raises(SinkError, match=r"can't be made from the first item on .*out\.jsonl.*: 90 items"):
        await (drain.open() if when == "open" else drain.finish(True))
    # What is there stays, and so does the note: if the file is put back, all goes on.
    assert file.read_text() == left
    assert outbox.cursors[str(file)] == cursor


async def test_what_an_output_lacks_is_not_removed_however_it_crashes(tmp_path: Path) -> None:
    outbox, file = MemoryOutbox(3000), tmp_path / "out.jsonl"
    moments = count()

    def crash(sink: str, cursor: Cursor) -> None:
        if next(moments) % 2:
            raise StoreError("away")

    outbox.before_advance = crash
    everything = ids(outbox)
    for _ in range(100):
        drain = Exporter(outbox, [JsonLines(file)], outbox, "me", keep=1)
        try:
            await drain.open()
            await drain.finish(True)
            break
        except StoreError:
            outbox.roles.clear()
    assert len(file.read_text().splitlines()) == len(everything) == 3000
    assert outbox.gone.count == 2999


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


@given(
    st.lists(st.tuples(st.integers(0, 150), st.sampled_from(["before write", "before advance", "none"])), max_size=6)
)
@settings(max_examples=50, deadline=None)
def test_exact_through_crashes(runs: list[tuple[int, str]]) -> None:
    outbox = MemoryOutbox()

    async def crashing_run(path: Path, crash: str) -> None:
        sink = JsonLines(path)
        write = sink.write

        def killed_write(items: Sequence[StoredItem]) -> bytes:
            if crash == "before write":
                raise Killed
            return write(items)

        def killed_advance(name: str, cursor: Cursor) -> None:
            if crash == "before advance":
                raise Killed

        sink.write = killed_write  # type: ignore[method-assign]
        outbox.before_advance = killed_advance
        drain = draining(outbox, [sink])
        try:
            await drain.finish(finished=False)
        except Killed:
            sink.close(finished=False)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.jsonl"
        for count, crash in runs:
            outbox.add(count)
            asyncio.run(crashing_run(path, crash))
        asyncio.run(crashing_run(path, "none"))
        assert path.read_bytes() == b"".join(item.json + b"\n" for item in outbox.stored)
