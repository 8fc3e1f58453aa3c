"""What goes wrong says so, with the right exit code: 1 failed, 2 wrong usage, 3 configuration, 4 no broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.conftest import MakeWorkshop, Workshop
from weft.testing.servers import RedisServer

NOWHERE = ["redis://127.0.0.1:1/0", "amqp://guest:guest@127.0.0.1:1//", "redis+socket:///nowhere/socket"]


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, redis_url: str) -> Workshop:
    """Without a worker."""
    made: Workshop = workshops(broker=redis_url)
    return made


@pytest.mark.parametrize("words", [["jobs", "status"], ["schedule", "ls"], ["up"], ["down"]], ids=" ".join)
def test_the_packages_are_not_installed(tmp_path: Path, words: list[str]) -> None:
    run = "import sys; sys.modules['celery'] = None; sys.argv[0] = 'weft'; from weft.cli import main; main()"
    told = subprocess.run(
        [sys.executable, "-c", run, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert told.returncode == 3
    assert told.stderr == "weft: jobs need some packages more: pip install weft[jobs]\n"


@pytest.mark.parametrize("broker", NOWHERE)
@pytest.mark.parametrize("words", [["worker"], ["beat"], ["call", "tasks.add", "-a", "[1, 2]"], ["status"], ["flower"]])
def test_broker_is_down(workshops: MakeWorkshop, broker: str, words: list[str]) -> None:
    told = workshops(broker=broker).weft("jobs", *words)

    assert told.returncode == 4, told.stderr
    assert told.stderr.count("\n") <= 2
    assert "can't be reached" in told.stderr
    assert "jobs.broker" in told.stderr


def test_wrong_password_for_redis(workshops: MakeWorkshop) -> None:
    with RedisServer(password="right") as server:
        told = workshops(broker=server.url.replace("right", "wrong")).weft("jobs", "worker")

    assert told.returncode == 4
    assert "refuses the login" in told.stderr
    assert "wrong" not in told.stderr.replace("wrong number", "").replace("WRONGPASS", "")


def test_wrong_password_for_rabbitmq(workshops: MakeWorkshop, rabbitmq_url: str) -> None:
    told = workshops(broker=rabbitmq_url.replace("guest:guest@", "guest:bad@", 1)).weft("jobs", "worker")

    assert told.returncode == 4
    assert "refuses the login" in told.stderr


def test_unknown_task(shop: Workshop) -> None:
    told = shop.weft("jobs", "call", "tasks.ad")

    assert told.returncode == 3
    assert "there is no task 'tasks.ad'; did you mean 'tasks.add'?" in told.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["call", "tasks.add", "-a", "{}"], "a JSON array"),
        (["call", "tasks.add", "-a", "[1"], "a JSON array"),
        (["call", "tasks.add", "-k", "[]"], "a JSON object"),
        (["call", "tasks.add", "--eta", "soon"], "'soon' is no time"),
        (["call", "tasks.add", "--expires", "never"], "'never' is no time"),
        (["call", "tasks.add", "--priority", "10"], "10 is not in the range"),
        (["worker", "--no-such-option"], "No such option"),
        (["inspect", "no_such_command"], "not recognized"),
    ],
)
def test_wrong_usage(shop: Workshop, words: list[str], message: str) -> None:
    told = shop.weft("jobs", *words)

    assert told.returncode == 2, told.stderr
    assert message in told.stderr


def test_too_far_ahead(shop: Workshop) -> None:
    told = shop.weft("jobs", "call", "tasks.add", "-a", "[1, 2]", "--countdown", "999999")

    assert told.returncode == 3
    assert "weft schedule add" in told.stderr


@pytest.mark.parametrize("words", [["status"], ["inspect", "active"], ["control", "pool_grow"], ["revoke", "some-id"]])
def test_nobody_answers(shop: Workshop, words: list[str]) -> None:
    told = shop.weft("jobs", *words)

    assert told.returncode == 1
    assert "no worker answered" in told.stderr
    assert "weft jobs worker" in told.stderr


def test_arguments_that_cannot_be_sent(shop: Workshop) -> None:
    with pytest.raises(Exception, match="not JSON serializable"):
        shop.task("add", object(), 1).apply_async()


@pytest.mark.parametrize("include", ["missing.py", "no_such_module"])
def test_missing_tasks(workshops: MakeWorkshop, redis_url: str, include: str) -> None:
    shop = workshops(broker=redis_url)
    shop.configure(broker=redis_url, include=[include])

    told = shop.weft("jobs", "worker")
    assert told.returncode == 3
    assert include in told.stderr
    assert "Traceback" not in told.stderr


def test_error_in_tasks(workshops: MakeWorkshop, redis_url: str) -> None:
    shop = workshops(broker=redis_url)
    (shop.folder / "tasks.py").write_text("from weft.jobs import app\n\n1 / 0\n")

    told = shop.weft("jobs", "worker")
    assert told.returncode == 3
    assert "tasks.py" in told.stderr
    assert "line 3" in told.stderr
    assert "ZeroDivisionError" in told.stderr


def test_missing_app(shop: Workshop) -> None:
    told = shop.weft("jobs", "-A", "no_such_module", "worker")

    assert told.returncode == 3
    assert "no_such_module" in told.stderr


def test_queue_that_is_there_in_another_form(workshops: MakeWorkshop, rabbitmq_url: str) -> None:
    shop = workshops(broker=rabbitmq_url)
    shop.worker("-c", "1")
    shop.configure(broker=rabbitmq_url, queue_type="quorum")

    told = shop.weft("jobs", "call", "tasks.add", "-a", "[1, 2]")
    assert told.returncode == 4
    assert "in another form" in told.stderr


def test_results_by_rpc_are_for_the_caller_only(workshops: MakeWorkshop, rabbitmq_url: str) -> None:
    told = workshops(broker=rabbitmq_url).weft("jobs", "result", "some-id")

    assert told.returncode == 3
    assert "jobs.backend" in told.stderr


def test_broker_that_goes_away_while_a_worker_runs_is_waited_for(workshops: MakeWorkshop) -> None:
    with RedisServer(appendonly=True) as server:
        shop = workshops(broker=server.url)
        shop.worker("-c", "1")
        assert shop.run("add", 1, 2) == 3

        server.kill()
        server.restart()
        assert shop.run("add", 2, 2) == 4
        shop.close()
