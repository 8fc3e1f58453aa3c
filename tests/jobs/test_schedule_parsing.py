"""Schedules as people write them."""

from __future__ import annotations

import tomllib
from datetime import timedelta
from typing import Any

import celery
import pytest
from celery.schedules import crontab, schedule

from uttu.errors import ConfigError
from uttu.jobs.schedules.catalog import read_fixed_schedules
from uttu.jobs.schedules.schedule import Schedule, parse_schedule, parse_trigger
from uttu.jobs.schedules.triggers import Cron, Every, Solar


def read(text: str, timezone: str = "UTC") -> Schedule:
    return parse_schedule("morning", tomllib.loads(text), "uttu.toml", timezone)


def test_a_table_in_full() -> None:
    text = """
    task = "uttu.crawl"
    crontab = "0 7 * * mon-fri"
    timezone = "Europe/Berlin"
    args = ["books.py"]
    kwargs = {fresh = true}
    queue = "slow"
    priority = 9
    options = {expires = 60}
    overlap = "skip"
    grace = 120
    """
    assert read(text) == Schedule(
        name="morning",
        task="uttu.crawl",
        when=Cron("0 7 * * mon-fri", "Europe/Berlin"),
        args=("books.py",),
        kwargs={"fresh": True},
        options={"expires": 60, "queue": "slow", "priority": 9},
        overlap="skip",
        grace=120.0,
        source="uttu.toml",
    )


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("every = 30", Every(30.0)),
        ("every = 0.5", Every(0.5)),
        ('crontab = "0 7 * * *"', Cron("0 7 * * *", "Asia/Tokyo")),
        ('solar = "sunset"\nlatitude = 52\nlongitude = 13.4', Solar("sunset", 52.0, 13.4)),
    ],
)
def test_when(text: str, when: Any) -> None:
    assert read(f'task = "t"\n{text}', "Asia/Tokyo").when == when


def test_any_grace() -> None:
    assert read('task = "t"\nevery = 1\ngrace = inf').grace is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('task = "t"', "Schedule 'morning': Give one of every = SECONDS, crontab = LINE, solar = EVENT"),
        ('task = "t"\nevery = 1\ncrontab = "@daily"', "Schedule 'morning': Give one of every"),
        ("every = 1", "Schedule 'morning': The task is missing"),
        (
            'task = "t"\ncrontab = "61 * * * *"',
            "Schedule 'morning': Malformed crontab '61 * * * *': '61' is not a valid minute",
        ),
        ('task = "t"\ncrontab = "0 0 31 4 *"', "Schedule 'morning': The crontab '0 0 31 4 *' is never due"),
        ('task = "t"\nevery = 0', "Schedule 'morning': every=0 is out of range. Give seconds"),
        ('task = "t"\nevery = "often"', "Schedule 'morning': every='often' is not a number of seconds"),
        ('task = "t"\nevery = true', "Schedule 'morning': every=True is not a number of seconds"),
        ('task = "t"\nsolar = "sunrise"', "Schedule 'morning': solar needs latitude and longitude"),
        ('task = "t"\nevery = 1\ntimezone = "UTC"', "timezone needs crontab"),
        ('task = "t"\ncrontab = "@daily"\ntimezone = "Mars"', "no time zone 'Mars'"),
        ('task = "t"\nevery = 1\noverlap = "never"', "Schedule 'morning': Invalid enum value 'never' - at `$.overlap`"),
        ('task = "t"\nevery = 1\ngrace = 2', "Schedule 'morning': grace=2 is too short"),
        ('task = "t"\nevery = 1\nkwarg = {}', "Schedule 'morning': Unknown key 'kwarg'. Did you mean 'kwargs'?"),
        ("task = 5\nevery = 1", "Schedule 'morning': Expected `str`, got `int` - at `$.task`"),
    ],
)
def test_errors_are_reported(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert says in str(caught.value)
    assert str(caught.value).count("Schedule 'morning'") == 1


def test_arguments_must_be_ones_that_can_be_kept() -> None:
    with pytest.raises(ConfigError, match="Schedule 'x': The arguments must be JSON"):
        parse_schedule("x", {"task": "t", "every": 1, "args": [object()]}, "code")


@pytest.mark.parametrize(
    ("value", "when"),
    [
        (30, Every(30.0)),
        (timedelta(minutes=2), Every(120.0)),
        (schedule(timedelta(seconds=5)), Every(5.0)),
        (crontab(minute=0, hour="*/3"), Cron("0 */3 * * *", "Europe/Berlin")),
        (crontab(minute=[0, 30], day_of_week="mon-fri"), Cron("0,30 * * * mon-fri", "Europe/Berlin")),
        (crontab(0, 0, day_of_month="1", month_of_year=1), Cron("0 0 1 1 *", "Europe/Berlin")),
        (Every(3.0), Every(3.0)),
    ],
)
def test_what_celery_takes_is_taken(value: Any, when: Any) -> None:
    assert parse_trigger(value, "Europe/Berlin") == when


def test_a_schedule_of_another_kind_is_refused() -> None:
    class Odd(schedule):
        pass

    with pytest.raises(ConfigError, match="is not a schedule"):
        parse_trigger(Odd(timedelta(seconds=1)))


def test_celery_s_own_ways_are_read() -> None:
    app = celery.Celery("own", set_as_current=False)

    @app.task(name="own.task")
    def task(number: int) -> None: ...

    app.conf.timezone = "Europe/Berlin"
    app.conf.beat_schedule = {
        "named": {"task": "own.task", "schedule": crontab(hour=7, minute=30), "args": (1,), "options": {"queue": "q"}},
        "wrong": {"task": "own.task", "schedule": "now and then"},
    }

    @app.on_after_configure.connect
    def setup(sender: celery.Celery, **_: Any) -> None:
        sender.add_periodic_task(10.0, task.s(2), name="added", expires=10)

    found, wrong = read_fixed_schedules(app)
    assert {entry.name: (entry.when, entry.args, entry.options) for entry in found} == {
        "named": (Cron("30 7 * * *", "Europe/Berlin"), (1,), {"queue": "q"}),
        "added": (Every(10.0), (2,), {"expires": 10}),
    }
    assert [text.partition(":")[0] for text in wrong] == ["Schedule 'wrong'"]
    app.close()
