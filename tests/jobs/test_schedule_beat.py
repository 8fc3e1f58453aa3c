"""A beat among others: who leads, what it waits for, and what it says."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.harness.servers import RedisServer
from tests.jobs.conftest import close_alone
from uttu.errors import StoreError
from uttu.jobs import App, JobSettings
from uttu.jobs.schedules.beat import Scheduler
from uttu.testing.waiting import wait_until

Beats = Callable[..., Scheduler]


@pytest.fixture
def beats(redis_url: str, tmp_path: Path) -> Iterator[Beats]:
    """Beats of one app, each with an app object of its own, as in another process."""
    name = f"t{uuid.uuid4().hex[:10]}"
    made: list[Scheduler] = []

    def make(broker: str = redis_url, **settings: Any) -> Scheduler:
        app = App(JobSettings(broker=broker, name=name, queue=name, **settings), tmp_path, set_as_current=False)
        made.append(Scheduler(app))
        return made[-1]

    yield make
    for each in made:
        each.close()
        close_alone(each.app)


def leads(beat: Scheduler) -> bool:
    beat.tick()
    return beat._leader is not None


SCHEDULE = {"e": {"task": "tasks.any", "every": 3600}}


def test_next_beat_leads_when_the_leader_ends(beats: Beats) -> None:
    first, second = beats(schedule=SCHEDULE), beats(schedule=SCHEDULE)
    assert leads(first)
    assert not leads(second)
    assert leads(first)
    first.close()
    assert leads(second)
    assert not leads(first)


def test_suspended_leader_sees_that_another_leads(beats: Beats, caplog: pytest.LogCaptureFixture) -> None:
    first, second = beats(schedule=SCHEDULE), beats(schedule=SCHEDULE)
    assert leads(first)
    first.store.resign(first._owner)  # as if its time had run out
    assert leads(second)
    assert not leads(first)
    assert "Another beat leads now" in caplog.text


def test_unavailable_store_is_waited_for(tmp_path: Path, beats: Beats, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with RedisServer("redis", appendonly=True) as server:
        beat = beats(server.url, schedule=SCHEDULE)
        assert leads(beat)
        next_due = beat.store.entries()[0].state.next
        server.kill()
        assert [beat.tick() for _ in range(3)] == [1.0] * 3
        server.restart()
        wait_until(lambda: leads(beat) and "Schedules continue" in caplog.text)
        assert beat.store.entries()[0].state.next == next_due
    waits = [record.message for record in caplog.records if record.message.startswith("Schedules wait: ")]
    assert len(set(waits)) == len(waits)


def test_leader_installs_fixed_schedules_in_an_empty_store(beats: Beats, redis_url: str) -> None:
    beat = beats(schedule=SCHEDULE)
    assert leads(beat)
    with redis.Redis.from_url(redis_url) as client:
        for key in client.scan_iter(f"uttu:{{{beat.app.uttu.name}}}:*"):
            client.delete(key)
    beat.tick()
    assert [kept.entry.name for kept in beat.store.entries()] == ["e"]


def test_beat_reports_a_missing_store_at_its_start(beats: Beats) -> None:
    beat = beats(schedules="redis://127.0.0.1:1/0")
    with pytest.raises(StoreError, match="Cannot read or write the schedules on redis://127"):
        _ = beat.info


def test_expired_results_are_cleaned_up(beats: Beats, tmp_path: Path) -> None:
    beat = beats(backend=f"db+sqlite:///{tmp_path}/results.db")
    beat.tick()
    (kept,) = beat.store.entries()
    assert (kept.entry.task, str(kept.entry.when)) == ("celery.backend_cleanup", "0 4 * * * UTC")
