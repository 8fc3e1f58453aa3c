"""What goes wrong says so, with the right exit code: 1 failed, 2 wrong usage, 3 configuration, 4 no broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.servers import RedisServer
from tests.jobs.conftest import PATIENCE, MakeWorkshop, Workshop

NOWHERE = ["redis://127.0.0.1:1/0", "amqp://guest:guest@127.0.0.1:1//", "redis+socket:///nowhere/socket"]


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, redis_url: str) -> Workshop:
    """Without a worker."""
    made: Workshop = workshops(broker=redis_url)
    return made


JOBS = ("celery", "kombu", "click", "amqp", "redis", "flower", "sqlalchemy")


def without(packages: Sequence[str], folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command where some packages are not installed."""
    run = (
        f"import sys; sys.modules.update(dict.fromkeys({packages!r})); sys.argv[0] = 'uttu'; "
        "from uttu.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", run, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    "words",
    [
        *(["jobs", word] for word in ("worker", "beat", "status", "multi", "inspect", "control", "purge", "flower")),
        ["jobs", "worker", "--help"],
        ["jobs", "call", "x"],
        ["jobs", "result", "x"],
        ["jobs", "revoke", "x"],
        ["schedule", "ls"],
        ["schedule", "run", "x"],
        ["up"],
        ["down"],
    ],
    ids=" ".join,
)
def test_the_packages_are_not_installed(tmp_path: Path, words: list[str]) -> None:
    told = without(JOBS, tmp_path, *words)
    assert told.returncode == 3
    assert told.stderr == "uttu: Jobs need the \"jobs\" extra: pip install 'uttu[jobs]'\n"


@pytest.mark.parametrize(
    ("package", "words", "environment", "said"),
    [
        ("flower", ["jobs", "flower"], {}, 'Flower needs the "jobs" extra'),
        ("redis", ["jobs", "status"], {}, "uttu["),
        ("redis", ["schedule", "ls"], {}, "uttu["),
        ("sqlalchemy", ["jobs", "result", "x"], {"UTTU_JOBS_BACKEND": "db+sqlite:///x.db"}, "uttu[jobs]"),
        ("nothing", ["jobs", "result", "x"], {"UTTU_JOBS_BACKEND": "foo://x"}, "jobs.backend: Cannot use foo://x"),
        ("aiormq", ["crawl", "s.py", "-o", "amqp://h?topic=t"], {}, "uttu[rabbitmq]"),
        ("confluent_kafka", ["crawl", "s.py", "-o", "kafka://h?topic=t"], {}, "uttu[kafka]"),
        ("redis", ["crawl", "s.py", "-o", "redis://h?topic=t"], {}, "uttu[redis]"),
    ],
)
def test_one_package_is_not_installed(
    tmp_path: Path, package: str, words: list[str], environment: dict[str, str], said: str
) -> None:
    (tmp_path / "s.py").write_text(
        'from uttu import Spider\nspider = Spider("s", start="http://127.0.0.1:9/")\n@spider.page\ndef p(page): ...\n'
    )
    told = without((package,), tmp_path, *words, UTTU_JOBS_BROKER="redis://127.0.0.1:9/0", **environment)
    assert told.returncode == 3, told.stderr
    assert said in told.stderr
    assert told.stderr.count("\n") == 1


def test_no_worker_answers_a_waiting_caller(shop: Workshop) -> None:
    waiting = shop.start("jobs", "call", "tasks.add", "-a", "[1, 2]", "--wait", until="No worker answers")
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(PATIENCE) == 130
    assert "Traceback" not in shop.log()
    told = shop.uttu("jobs", "call", "tasks.add", "-a", "[1, 2]", "--wait", "--timeout", "3")
    assert told.returncode == 1
    assert "No worker answers" in told.stderr
    assert "is not done after 3 seconds" in told.stderr
    assert shop.uttu("jobs", "call", "tasks.add", "--timeout", "3").returncode == 2


@pytest.mark.parametrize("broker", NOWHERE)
@pytest.mark.parametrize("words", [["worker"], ["beat"], ["call", "tasks.add", "-a", "[1, 2]"], ["status"], ["flower"]])
def test_broker_is_down(workshops: MakeWorkshop, broker: str, words: list[str]) -> None:
    told = workshops(broker=broker).uttu("jobs", *words)

    assert told.returncode == 4, told.stderr
    assert told.stderr.count("\n") <= 2
    assert "can't be reached" in told.stderr
    assert "jobs.broker" in told.stderr


def test_wrong_password_for_redis(workshops: MakeWorkshop) -> None:
    with RedisServer(password="right") as server:
        told = workshops(broker=server.url.replace("right", "wrong")).uttu("jobs", "worker")

    assert told.returncode == 4
    assert "refuses the login" in told.stderr
    assert "wrong" not in told.stderr.replace("wrong number", "").replace("WRONGPASS", "")


def test_wrong_password_for_rabbitmq(workshops: MakeWorkshop, rabbitmq_url: str) -> None:
    told = workshops(broker=rabbitmq_url.replace("guest:guest@", "guest:bad@", 1)).uttu("jobs", "worker")

    assert told.returncode == 4
    assert "refuses the login" in told.stderr


def test_unknown_task(shop: Workshop) -> None:
    told = shop.uttu("jobs", "call", "tasks.ad")

    assert told.returncode == 3
    assert "There is no task 'tasks.ad'; did you mean 'tasks.add'?" in told.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["call", "tasks.add", "-a", "{}"], "a JSON array"),
        (["call", "tasks.add", "-a", "[1"], "a JSON array"),
        (["call", "tasks.add", "-k", "[]"], "a JSON object"),
        (["call", "tasks.add", "--eta", "soon"], "'soon' is not a time"),
        (["call", "tasks.add", "--expires", "never"], "'never' is not a time"),
        (["call", "tasks.add", "--priority", "10"], "10 is not in the range"),
        (["worker", "--no-such-option"], "No such option"),
        (["inspect", "no_such_command"], "not recognized"),
    ],
)
def test_wrong_usage(shop: Workshop, words: list[str], message: str) -> None:
    told = shop.uttu("jobs", *words)

    assert told.returncode == 2, told.stderr
    assert message in told.stderr


def test_too_far_ahead(shop: Workshop) -> None:
    told = shop.uttu("jobs", "call", "tasks.add", "-a", "[1, 2]", "--countdown", "999999")

    assert told.returncode == 3
    assert "uttu schedule add" in told.stderr


@pytest.mark.parametrize("words", [["status"], ["inspect", "active"], ["control", "pool_grow"], ["revoke", "some-id"]])
def test_nobody_answers(shop: Workshop, words: list[str]) -> None:
    told = shop.uttu("jobs", *words)

    assert told.returncode == 1
    assert "No worker answered" in told.stderr
    assert "uttu jobs worker" in told.stderr


def test_a_serializer_that_does_not_exist(shop: Workshop) -> None:
    told = shop.uttu("jobs", "call", "tasks.add", "-a", "[1, 2]", "--serializer", "nonsense")
    assert told.returncode == 2
    assert told.stderr == "uttu: No encoder installed for nonsense: give json, or another one that Kombu knows\n"


def test_arguments_that_cannot_be_sent(shop: Workshop) -> None:
    with pytest.raises(Exception, match="not JSON serializable"):
        shop.task("add", object(), 1).apply_async()


@pytest.mark.parametrize("include", ["missing.py", "no_such_module"])
def test_missing_tasks(workshops: MakeWorkshop, redis_url: str, include: str) -> None:
    shop = workshops(broker=redis_url)
    shop.configure(broker=redis_url, include=[include])

    told = shop.uttu("jobs", "worker")
    assert told.returncode == 3
    assert include in told.stderr
    assert "Traceback" not in told.stderr


def test_error_in_tasks(workshops: MakeWorkshop, redis_url: str) -> None:
    shop = workshops(broker=redis_url)
    (shop.folder / "tasks.py").write_text("from uttu.jobs import app\n\n1 / 0\n")

    told = shop.uttu("jobs", "worker")
    assert told.returncode == 3
    assert "tasks.py" in told.stderr
    assert "line 3" in told.stderr
    assert "ZeroDivisionError" in told.stderr


def test_missing_app(shop: Workshop) -> None:
    told = shop.uttu("jobs", "-A", "no_such_module", "worker")

    assert told.returncode == 3
    assert "no_such_module" in told.stderr


def test_queue_exists_with_another_type(workshops: MakeWorkshop, rabbitmq_url: str) -> None:
    shop = workshops(broker=rabbitmq_url)
    shop.worker("-c", "1")
    shop.configure(broker=rabbitmq_url, queue_type="quorum")

    told = shop.uttu("jobs", "call", "tasks.add", "-a", "[1, 2]")
    assert told.returncode == 4
    assert "in another form" in told.stderr


def test_results_by_rpc_are_for_the_caller_only(workshops: MakeWorkshop, rabbitmq_url: str) -> None:
    told = workshops(broker=rabbitmq_url).uttu("jobs", "result", "some-id")

    assert told.returncode == 3
    assert "jobs.backend" in told.stderr


def test_worker_waits_for_a_lost_broker(workshops: MakeWorkshop) -> None:
    with RedisServer(appendonly=True) as server:
        shop = workshops(broker=server.url)
        shop.worker("-c", "1")
        assert shop.run("add", 1, 2) == 3

        server.kill()
        server.restart()
        assert shop.run("add", 2, 2) == 4
        shop.close()
