"""The beat that leads, turn by turn: with a clock that tests turn, a real store and a real broker."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from celery.beat import BeatLazyFunc

from tests.harness.servers import RedisServer
from tests.jobs.conftest import close_alone
from uttu.jobs import App, JobSettings
from uttu.jobs.schedules.base import RunState, ScheduleBackend
from uttu.jobs.schedules.beat import BrokerAway, Leader, _Deposed, send
from uttu.jobs.schedules.catalog import open_schedule_store
from uttu.jobs.schedules.schedule import Schedule, ScheduleState, create_run
from uttu.jobs.schedules.triggers import Every
from uttu.jobs.task import RUN_HEADER
from uttu.testing.clock import FakeClock
from uttu.testing.waiting import wait_until

LONG = 600.0


class Beat:
    """A leader, its store and its queue."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        self.clock = FakeClock()
        self.name = f"t{uuid.uuid4().hex[:10]}"
        self.url = url
        self.app = App(
            JobSettings(broker=url, name=self.name, queue=self.name, **settings), folder, set_as_current=False
        )
        self.store: ScheduleBackend = open_schedule_store("sqlite:s.db", self.name, folder)
        self.leader = self.takes_over("one")

    def takes_over(self, owner: str) -> Leader:
        if hasattr(self, "leader"):
            self.store.resign(self.leader._owner)
        token = self.store.lead(owner, LONG)
        assert token is not None
        self.leader = Leader(self.app, self.store, owner, token, self.clock.time)
        return self.leader

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.time(), UTC)

    def add(self, every: float = 60.0, **more: Any) -> None:
        """The entry ``e``, due in so many seconds."""
        entry = Schedule(name="e", task="tasks.any", when=Every(every), source="command", **more)
        self.store.put(entry, ScheduleState(next=self.now + timedelta(seconds=every)), replace=True)

    def pass_(self, seconds: float) -> float:
        self.clock.advance(seconds)
        return self.leader.run_cycle()

    @property
    def state(self) -> ScheduleState:
        return self.store.entries()[0].state

    @property
    def sent(self) -> list[dict[str, Any]]:
        """What the broker was given, the earliest first."""
        with redis.Redis.from_url(self.url) as client:
            found: Any = client.lrange(self.name, 0, -1)
        return [json.loads(message) for message in reversed(found)]

    @property
    def ids(self) -> list[str]:
        return [message["headers"]["id"] for message in self.sent]

    def close(self) -> None:
        self.store.close()
        close_alone(self.app)


@pytest.fixture
def beats(redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Beat]]:
    made: list[Beat] = []

    def make(url: str = redis_url, **settings: Any) -> Beat:
        made.append(Beat(url, tmp_path, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def beat(beats: Callable[..., Beat]) -> Beat:
    return beats()


def test_due_run_is_sent_once(beat: Beat) -> None:
    beat.add(args=(1,), kwargs={"x": 2}, options={"priority": 0})
    due = beat.state.next
    assert beat.pass_(59.5) == 0.5
    assert beat.sent == []
    beat.pass_(0.5)
    beat.leader.run_cycle()
    (message,) = beat.sent
    assert message["headers"]["task"] == "tasks.any"
    assert message["headers"]["id"] == create_run(beat.name, "e", due).id
    assert json.loads(base64.b64decode(message["body"]))[:2] == [[1], {"x": 2}]
    assert message["headers"][RUN_HEADER]["entry"] == "e"
    assert (beat.state.last, beat.state.next, beat.state.sent) == (due, due + timedelta(seconds=60), 1)
    assert beat.store.runs() == []


def test_a_clock_that_is_set_back_does_not_send_again(beat: Beat) -> None:
    beat.add()
    beat.pass_(60)
    beat.clock._time -= 3000
    beat.leader.run_cycle()
    beat.pass_(3000)
    assert len(beat.sent) == 1
    beat.pass_(60)
    assert len(beat.sent) == 2


def test_who_takes_over_goes_on(beat: Beat) -> None:
    beat.add()
    beat.pass_(60)
    former = beat.leader
    beat.clock.advance(60)
    beat.takes_over("two").run_cycle()
    former.run_cycle()
    assert len(beat.sent) == 2
    assert len(set(beat.ids)) == 2


def test_next_leader_sends_unsent_runs(beat: Beat, monkeypatch: pytest.MonkeyPatch) -> None:
    beat.add()

    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("uttu.jobs.schedules.beat.send", killed)
        with pytest.raises(Killed):
            beat.pass_(60)
    (left,) = beat.store.runs()
    assert beat.sent == []
    beat.takes_over("two").run_cycle()
    assert beat.ids == [left.id]
    assert beat.store.runs() == []


def test_run_that_was_not_deleted_is_sent_with_the_same_id(beat: Beat, monkeypatch: pytest.MonkeyPatch) -> None:
    beat.add()
    done = beat.store.change

    def killed(*words: Any, drop: Any = (), **more: Any) -> bool:
        if drop:
            raise KeyboardInterrupt
        return done(*words, drop=drop, **more)

    with monkeypatch.context() as patched:
        patched.setattr(beat.store, "change", killed)
        with pytest.raises(KeyboardInterrupt):
            beat.pass_(60)
    beat.takes_over("two").run_cycle()
    assert len(beat.ids) == 2
    assert len(set(beat.ids)) == 1
    assert beat.state.sent == 1


def test_a_leader_that_lost_its_lease_sends_no_more(beat: Beat, monkeypatch: pytest.MonkeyPatch) -> None:
    beat.add()
    former = beat.leader
    beat.takes_over("two")
    beat.clock.advance(60)
    beat.store.change("e", beat.state, beat.state, add=[create_run(beat.name, "e", beat.now)])
    former._renewed -= 10
    with pytest.raises(_Deposed):
        former.run_cycle()
    assert beat.sent == []


def test_a_broker_that_is_away_is_waited_for(beats: Callable[..., Beat]) -> None:
    with RedisServer("redis", appendonly=True) as server:
        beat = beats(server.url)
        beat.add(every=10.0)
        server.kill()
        for _ in range(3):
            with pytest.raises(BrokerAway):
                beat.pass_(10)
        assert len(beat.store.runs()) == 1
        server.restart()
        beat.leader.run_cycle()
        # The one that was written down; and of the two that were missed since, as they are due a few seconds ago, both.
        assert len(beat.sent) == 3
        assert len(set(beat.ids)) == 3


def test_run_that_waits_longer_than_its_grace_is_left_out(beat: Beat) -> None:
    beat.add(grace=100.0)
    beat.store.change("e", beat.state, beat.state, add=[create_run(beat.name, "e", beat.now - timedelta(seconds=101))])
    beat.leader.run_cycle()
    assert beat.sent == []
    assert beat.store.runs() == []
    assert beat.state.missed == 1


def test_run_due_without_a_beat_is_sent_once(beat: Beat) -> None:
    beat.add()
    beat.pass_(86_400)
    assert len(beat.sent) == 1
    beat.pass_(60)
    assert len(beat.sent) == 2


def test_paused_schedule_skips_its_runs(beat: Beat) -> None:
    beat.add()
    paused = ScheduleState(next=beat.state.next, paused=True)
    beat.store.change("e", beat.state, paused)
    assert beat.pass_(120) == 1.0
    assert beat.sent == []


def test_schedule_paused_during_a_send_counts_as_sent(beat: Beat, monkeypatch: pytest.MonkeyPatch) -> None:
    beat.add()

    def paused_then(*words: Any) -> str:
        beat.store.change("e", beat.state, msgspec.structs.replace(beat.state, paused=True))
        return send(*words)

    monkeypatch.setattr("uttu.jobs.schedules.beat.send", paused_then)
    beat.pass_(60)
    assert len(beat.sent) == 1
    assert (beat.state.sent, beat.state.paused) == (1, True)
    assert beat.store.runs() == []


def test_unserialisable_arguments_block_no_other_schedule(beat: Beat) -> None:
    beat.store.put(
        Schedule(name="bad", task="tasks.any", when=Every(60.0), options={"serializer": "no-such"}, source="command"),
        ScheduleState(next=beat.now),
    )
    beat.store.put(
        Schedule(name="good", task="tasks.any", when=Every(60.0), source="command"), ScheduleState(next=beat.now)
    )
    beat.leader.run_cycle()
    assert [message["headers"][RUN_HEADER]["entry"] for message in beat.sent] == ["good"]
    notes = {kept.entry.name: kept.state.note for kept in beat.store.entries()}
    assert "no-such" in notes["bad"]
    assert notes["good"] == ""
    assert beat.store.runs() == []


def test_lazy_arguments_are_evaluated_for_each_run(beat: Beat) -> None:
    numbers = iter(range(10))
    lazy = {"args": (BeatLazyFunc(lambda: next(numbers)), "x"), "kwargs": {"y": BeatLazyFunc(lambda: next(numbers))}}
    beat.app.conf.beat_schedule["lazy"] = {"task": "tasks.any", "schedule": 60.0, **lazy}
    beat.leader.install()
    beat.pass_(60)
    beat.pass_(60)
    bodies = [json.loads(base64.b64decode(message["body"]))[:2] for message in beat.sent]
    assert bodies == [[[0, "x"], {"y": 1}], [[2, "x"], {"y": 3}]]


class TestOverlap:
    def test_allow_sends_beside_the_run_before(self, beat: Beat) -> None:
        beat.add(overlap="allow")
        beat.pass_(60)
        beat.pass_(60)
        assert len(beat.sent) == 2

    def test_skip_while_the_previous_run_waits_or_runs(self, beat: Beat) -> None:
        beat.add(overlap="skip")
        beat.pass_(60)
        beat.pass_(60)
        assert (len(beat.sent), beat.state.skipped) == (1, 1)
        beat.store.begin(beat.ids[0], "worker", LONG, alone="e")
        beat.pass_(60)
        assert (len(beat.sent), beat.state.skipped) == (1, 2)
        beat.store.end(beat.ids[0], "worker", LONG, alone="e", again=True)
        beat.pass_(60)
        assert (len(beat.sent), beat.state.skipped) == (1, 3)
        beat.store.begin(beat.ids[0], "worker", LONG, alone="e")
        beat.store.end(beat.ids[0], "worker", LONG, alone="e")
        beat.leader.run_cycle()
        assert len(beat.sent) == 1
        beat.pass_(60)
        assert (len(beat.sent), beat.state.skipped) == (2, 3)

    def test_skip_sends_one_of_several_that_are_due(self, beat: Beat) -> None:
        beat.add(every=1.0, overlap="skip")
        beat.pass_(5)
        assert len(beat.sent) == 1

    def test_dead_worker_blocks_no_run(self, beat: Beat) -> None:
        beat.add(overlap="skip")
        beat.pass_(60)
        beat.store.begin(beat.ids[0], "worker", 0.001, alone="e")
        wait_until(lambda: beat.store.marks(beat.ids) == [RunState.LAPSED])
        beat.pass_(60)
        assert len(beat.sent) == 2

    def test_lost_message_blocks_its_schedule_for_the_grace_only(self, beat: Beat) -> None:
        beat.add(overlap="skip", grace=120.0)
        beat.pass_(60)
        beat.pass_(60)
        assert len(beat.sent) == 1
        beat.pass_(60)
        assert len(beat.sent) == 2

    def test_queue_sends_a_run_when_the_previous_one_is_over(self, beat: Beat) -> None:
        beat.add(overlap="queue")
        for _ in range(3):
            beat.pass_(60)
        assert len(beat.sent) == 1
        assert len(beat.store.runs()) == 2
        for number in (1, 2):
            beat.store.begin(beat.ids[-1], "worker", LONG, alone="e")
            beat.leader.run_cycle()
            assert len(beat.sent) == number
            beat.store.end(beat.ids[-1], "worker", LONG, alone="e")
            beat.leader.run_cycle()
            assert len(beat.sent) == number + 1
        dues = [message["headers"][RUN_HEADER]["due"] for message in beat.sent]
        assert dues == sorted(set(dues))
        assert beat.store.runs() == []

    def test_run_queued_longer_than_its_grace_is_left_out(self, beat: Beat) -> None:
        beat.add(overlap="queue", grace=150.0)
        for number in range(6):
            beat.pass_(60)
            if number == 0:
                beat.store.begin(beat.ids[0], "worker", LONG, alone="e")
        assert len(beat.sent) == 1
        assert len(beat.store.runs()) == 3
        assert beat.state.missed == 2


class TestInstalling:
    def test_leader_updates_schedules_of_uttu_toml(self, beats: Callable[..., Beat]) -> None:
        beat = beats(schedule={"f": {"task": "tasks.any", "every": 60}, "g": {"task": "tasks.any", "every": 7}})
        beat.add()
        beat.leader.install()
        names = [kept.entry.name for kept in beat.store.entries()]
        assert names == ["e", "f", "g"]
        before = {kept.entry.name: kept.state for kept in beat.store.entries()}
        beat.clock.advance(5)
        # The same file, changed: f has other arguments, g is gone, h is new.
        beat.app.uttu = JobSettings(
            broker=beat.url,
            name=beat.name,
            schedule={"f": {"task": "tasks.any", "every": 60, "args": [1]}, "h": {"task": "tasks.any", "every": 9}},
        )
        beat.takes_over("two").install()
        after = {kept.entry.name: kept for kept in beat.store.entries()}
        assert sorted(after) == ["e", "f", "h"]
        assert after["f"].entry.args == (1,)
        assert after["f"].state == before["f"]

    def test_another_time_counts_from_now_on(self, beats: Callable[..., Beat]) -> None:
        beat = beats(schedule={"e": {"task": "tasks.any", "every": 60}})
        beat.leader.install()
        beat.app.uttu = JobSettings(broker=beat.url, name=beat.name, schedule={"e": {"task": "t", "every": 10}})
        beat.clock.advance(30)
        beat.takes_over("two").install()
        assert beat.state.next == beat.now + timedelta(seconds=10)

    def test_a_restart_forgets_nothing(self, beats: Callable[..., Beat]) -> None:
        beat = beats(schedule={"e": {"task": "tasks.any", "every": 60}})
        beat.leader.install()
        beat.pass_(60)
        beat.clock.advance(90)
        beat.takes_over("two").install()
        beat.leader.run_cycle()
        assert len(beat.sent) == 2
        assert beat.state.last == beat.now - timedelta(seconds=30)

    def test_schedule_added_by_command_is_not_overwritten(
        self, beats: Callable[..., Beat], caplog: pytest.LogCaptureFixture
    ) -> None:
        beat = beats(schedule={"e": {"task": "other", "every": 9}})
        beat.add()
        beat.leader.install()
        assert beat.store.entries()[0].entry.task == "tasks.any"
        assert "Left out schedule 'e' of uttu.toml" in caplog.text

    def test_invalid_schedule_does_not_stop_the_others(
        self, beats: Callable[..., Beat], caplog: pytest.LogCaptureFixture
    ) -> None:
        beat = beats(schedule={"a": {"task": "t", "crontab": "x"}, "b": {"task": "t", "every": 9}})
        beat.leader.install()
        assert [kept.entry.name for kept in beat.store.entries()] == ["b"]
        assert "Left out: Schedule 'a': Malformed crontab 'x'" in caplog.text
