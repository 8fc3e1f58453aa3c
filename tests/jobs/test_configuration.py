"""D9: configuration: ``uttu.toml``, environment, a module in Celery's own way, new and old names; sound defaults."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from celery.app.defaults import _TO_NEW_KEY, DEFAULTS

from tests.jobs.conftest import MakeWorkshop
from uttu import settings as config
from uttu.errors import ConfigError
from uttu.jobs import App, JobSettings
from uttu.jobs import settings as job_settings
from uttu.jobs.schedules import Every, Solar

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "jobs-settings.md"
REDIS = "redis://127.0.0.1:1/0"
RABBITMQ = "amqp://guest:guest@127.0.0.1:1//"


def app_with(broker: str = REDIS, **settings: object) -> App:
    return App(JobSettings(broker=broker, **settings), set_as_current=False)  # type: ignore[arg-type]


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A module with settings, by the name of ``celeryconfig_of_test``."""
    made = ModuleType("celeryconfig_of_test")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def test_file_and_environment(tmp_path: Path) -> None:
    (tmp_path / "uttu.toml").write_text(f'[jobs]\nbroker = "{REDIS}"\ntimezone = "Europe/Berlin"\nqueue = "a"\n')

    found = job_settings.load_job_settings(
        tmp_path, {"UTTU_JOBS_QUEUE": "b", "UTTU_JOBS_INCLUDE": "x.py, y", "UTTU_JOBS_ROUTES": "{}"}
    )
    assert (found.broker, found.timezone, found.queue) == (REDIS, "Europe/Berlin", "b")
    assert found.include == ("x.py", "y")


def test_spiders_settings_leave_the_table_alone(tmp_path: Path) -> None:
    (tmp_path / "uttu.toml").write_text('delay = 2\n[jobs]\nqueue = "a"\n')

    assert config.load_settings(folder=tmp_path, environment={}).delay == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs = 7", "jobs must be a table"),
        ("[jobs]\nqueu = 'x'", "did you mean 'queue'"),
        ("[jobs]\nresult_seconds = 'long'", "result_seconds"),
        ("[jobs]\nbroker = 'kafka://h'", "kafka://h is not a broker for jobs"),
        ("[jobs]\nbroker = 'http://me:secret@h'", r"http://me:\*\*\*@h is not a broker"),
        ("[jobs]\nslice_seconds = 200", "slice_seconds=200 must be at most half"),
        ("[jobs]\ntimezone = 'Mars/Base'", "no time zone 'Mars/Base'"),
        ("[jobs]\nqueue_type = 'stream'", "queue_type"),
        ("[jobs]\nname = ''", "must not be empty"),
        ("[jobs\n", "Cannot read"),
    ],
)
def test_bad_settings_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "uttu.toml").write_text(text)

    with pytest.raises(ConfigError, match=message):
        job_settings.load_job_settings(tmp_path, {})


def test_sound_defaults() -> None:
    conf = app_with().conf

    assert list(conf.accept_content) == ["json"]
    assert (conf.task_serializer, conf.result_serializer) == ("json", "json")
    assert conf.task_track_started
    assert conf.worker_prefetch_multiplier == 1
    assert conf.result_expires == 86400
    assert not conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert (conf.enable_utc, conf.timezone) == (True, "UTC")
    assert conf.broker_transport_options["visibility_timeout"] == 300
    assert conf.result_backend == REDIS
    assert conf.result_extended


def test_rabbitmq_queues_have_priorities_or_are_quorum_queues() -> None:
    classic, quorum = app_with(RABBITMQ), app_with(RABBITMQ, queue_type="quorum")

    assert classic.conf.result_backend == "rpc://"
    assert not classic.conf.result_extended
    assert classic.amqp.queues["uttu"].queue_arguments == {"x-max-priority": 9}
    assert quorum.amqp.queues["uttu"].queue_arguments == {"x-queue-type": "quorum"}
    assert quorum.amqp.queues["unheard-of"].queue_arguments == {"x-queue-type": "quorum"}


@pytest.mark.parametrize(
    ("settings", "sender", "confirmed"),
    [
        ({}, None, False),
        ({}, SimpleNamespace(acks_late=False), False),
        ({}, SimpleNamespace(acks_late=True), True),
        ({"confirm": True}, None, True),
        ({"queue_type": "quorum"}, None, True),
    ],
)
def test_producer_pool_confirms_important_tasks(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], sender: Any, confirmed: bool
) -> None:
    monkeypatch.setattr(App, "current_worker_task", sender)
    rabbitmq, redis = app_with(RABBITMQ, **settings), app_with(REDIS, **settings)

    assert rabbitmq.producer_pool is (rabbitmq.amqp.confirming_pool if confirmed else rabbitmq.amqp.producer_pool)
    assert redis.producer_pool is redis.amqp.producer_pool


def test_any_setting_of_celery_by_new_and_old_name() -> None:
    app = app_with(celery={"task_time_limit": 9, "CELERYD_CONCURRENCY": 3, "CELERY_TASK_RESULT_EXPIRES": 5})

    assert (app.conf.task_time_limit, app.conf.worker_concurrency, app.conf.result_expires) == (9, 3, 5)


def test_unknown_setting_of_celery_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'task_time_limit'"):
        app_with(celery={"task_time_limits": 9}).conf.task_time_limit  # noqa: B018


def test_module_is_stronger_than_uttu_toml(module: ModuleType) -> None:
    module.worker_concurrency = 7  # type: ignore[attr-defined]
    module.timezone = "Asia/Tokyo"  # type: ignore[attr-defined]
    app = app_with(timezone="Europe/Berlin", celery={"worker_concurrency": 3})

    app.config_from_object("celeryconfig_of_test")
    assert (app.conf.worker_concurrency, app.conf.timezone) == (7, "Asia/Tokyo")
    assert app.conf.task_track_started, "what the module does not say stays as it was"


def test_module_with_a_namespace(module: ModuleType) -> None:
    module.CELERY_WORKER_CONCURRENCY = 5  # type: ignore[attr-defined]
    module.CELERY_BROKER_URL = RABBITMQ  # type: ignore[attr-defined]
    app = app_with()

    app.config_from_object("celeryconfig_of_test", namespace="CELERY")
    assert (app.conf.worker_concurrency, app.conf.broker_url) == (5, RABBITMQ)
    assert app.conf.result_backend == "rpc://", "the rest fits the broker of the module"


@pytest.mark.filterwarnings("ignore::celery.exceptions.CDeprecationWarning")
def test_module_with_old_names() -> None:
    app = app_with()

    app.config_from_object(
        SimpleNamespace(BROKER_URL=RABBITMQ, CELERYD_CONCURRENCY=4, CELERY_RESULT_BACKEND=REDIS, CELERY_TIMEZONE="UTC")
    )
    assert (app.conf.broker_url, app.conf.worker_concurrency, app.conf.result_backend) == (RABBITMQ, 4, REDIS)
    assert app.conf.worker_prefetch_multiplier == 1


def test_code_is_the_strongest(module: ModuleType) -> None:
    module.worker_concurrency = 7  # type: ignore[attr-defined]
    app = app_with()
    app.config_from_object("celeryconfig_of_test")

    app.conf.worker_concurrency = 8
    assert app.conf.worker_concurrency == 8


def test_every_makes_schedules() -> None:
    app = app_with(timezone="Europe/Berlin")

    @app.every(30)
    @app.every("0 7 * * *", name="morning", args=(1,), overlap="skip")
    @app.task(name="report", shared=False)
    def report(number: int = 0) -> None: ...

    @app.every(timedelta(minutes=2))
    def look() -> None: ...

    app.every(Solar("sunset", 50, 8), name="dusk")(look)

    assert not app.configured, "reading the configuration is for later"
    found = {entry.name: entry for entry in app.entries}
    assert list(found) == ["morning", "report", look.name, "dusk"]
    assert str(found["morning"].when) == "0 7 * * * Europe/Berlin"
    assert (found["morning"].task, found["morning"].args, found["morning"].overlap) == ("report", (1,), "skip")
    assert found["report"].when == Every(30)
    app.finalize()
    assert set(found) <= set(app.conf.beat_schedule)


def test_every_refuses_what_is_no_time() -> None:
    with pytest.raises(ConfigError, match="Malformed crontab"):
        app_with().every("0 77 * * *")


def test_every_refuses_a_name_twice() -> None:
    app = app_with()

    @app.every(30, name="twice")
    @app.every(60, name="twice")
    @app.task(shared=False)
    def recur() -> None: ...

    with pytest.raises(ConfigError, match="Two schedules have the name 'twice'"):
        app.finalize()


def test_modules_and_files_are_included(workshops: MakeWorkshop) -> None:
    shop = workshops(broker=REDIS)
    (shop.folder / "more").mkdir()
    (shop.folder / "more" / "extra_of_test.py").write_text("from uttu.jobs import app\n@app.task\ndef f(): pass\n")
    shop.configure(broker=REDIS, include=["more/extra_of_test.py", "tasks"])

    told = shop.uttu("jobs", "call", "nothing.such")
    assert "extra_of_test.f" in told.stderr
    assert "tasks.add" in told.stderr


def test_custom_app_runs_with_its_module(workshops: MakeWorkshop, redis_url: str) -> None:
    shop = workshops()
    (shop.folder / "mine.py").write_text(
        "from uttu.jobs import App, JobSettings\n"
        f"app = App(JobSettings(name='mine', queue={shop.name!r}))\n"
        f"app.config_from_object({{'broker_url': {redis_url!r}}})\n"
        "@app.task\n"
        "def hello(): return 'hello'\n"
    )
    shop.start("jobs", "-A", "mine", "worker", "-c", "1", "-l", "INFO", until=" ready.")

    told = shop.uttu("jobs", "-A", "mine", "call", "mine.hello", "--wait")
    assert (told.returncode, told.stdout.strip()) == (0, '"hello"'), told.stderr
    assert not (shop.folder / ".uttu").exists(), "no private server was needed"


def rows(part: int) -> list[list[str]]:
    """The rows of a table in the reference, that begin with a name."""
    text = PAGE.read_text().split("\n## ")[part]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return [row for row in found if len(row) > 2 and row[0].startswith("`")]


def test_every_setting_is_in_the_reference_with_its_default() -> None:
    shown = {row[0].strip("`"): row[1].strip("`") for row in rows(0)}

    assert shown == {
        field.name: msgspec.json.encode(getattr(JobSettings(), field.name)).decode()
        for field in msgspec.structs.fields(JobSettings)
    }


def test_old_names_in_the_reference_are_those_of_celery() -> None:
    for row in rows(1):
        names = re.findall("`([a-z_]+)`", row[0])
        assert {_TO_NEW_KEY[old] for old in re.findall("`([A-Z_]+)`", row[-1])} <= set(names), row
        assert set(names) <= set(DEFAULTS), row
