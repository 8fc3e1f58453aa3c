"""D10: brokers and result backends: Redis with a password, Valkey, RabbitMQ with quorum queues, SQL; serialisers."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chord

from tests.harness.servers import RedisServer
from tests.jobs.conftest import MakeWorkshop, Workshop
from uttu.jobs.settings import management_of, without_management


def test_redis_with_a_password(workshops: MakeWorkshop) -> None:
    with RedisServer(password="se/c:r@t") as server:
        shop = workshops(broker=server.url)
        shop.worker("-c", "1")

        assert shop.run("add", 1, 2) == 3
        assert "se/c:r@t" not in shop.log()
        assert "se%2Fc" not in shop.log()
        shop.close()


def test_valkey(workshops: MakeWorkshop, valkey_url: str) -> None:
    shop = workshops(broker=valkey_url)
    shop.worker("-c", "1")

    assert shop.run("add", 1, 2) == 3


def test_rabbitmq_confirms_on_request(workshops: MakeWorkshop, rabbitmq_url: str) -> None:
    amqp = workshops(broker=rabbitmq_url).app.amqp

    with amqp.confirming_pool.acquire() as confirming, amqp.producer_pool.acquire() as plain:
        assert confirming.channel.basic_publish == confirming.channel.basic_publish_confirm
        assert plain.channel.basic_publish != plain.channel.basic_publish_confirm


def _nothing() -> None:
    pass


@pytest.mark.parametrize("late", [True, False])
def test_rabbitmq_confirms_tasks_that_must_not_be_lost(
    workshops: MakeWorkshop, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    app = workshops(broker=rabbitmq_url).app
    confirmed = []

    def send_task(*_: Any, producer: Any, **__: Any) -> None:
        channel = producer and producer.channel
        confirmed.append(channel is not None and channel.basic_publish == channel.basic_publish_confirm)

    monkeypatch.setattr(app, "send_task", send_task)
    app.task(_nothing, name=f"late-{late}", acks_late=late).delay()

    assert confirmed == [late]


@pytest.fixture(scope="module")
def quorum(workshops: MakeWorkshop, rabbitmq_url: str, redis_url: str) -> Workshop:
    made: Workshop = workshops(broker=rabbitmq_url, backend=redis_url, queue_type="quorum")
    made.worker("-c", "1")
    return made


def test_workflow_over_quorum_queues(quorum: Workshop) -> None:
    flow = chord([quorum.task("add", number, 1) for number in range(3)], quorum.task("total"), app=quorum.app)

    assert quorum.get(flow.apply_async()) == 6


def test_rabbitmq_delays_tasks_of_quorum_queues(quorum: Workshop) -> None:
    assert quorum.get(quorum.task("add", 1, 2).apply_async(countdown=1)) == 3
    far = quorum.task("add", 1, 2).apply_async(countdown=100_000)
    assert quorum.run("add", 2, 2) == 4
    assert not far.ready()


def test_retries_over_quorum_queues(quorum: Workshop) -> None:
    assert quorum.run("stubborn") == 2


def test_results_in_sql_on_rabbitmq(
    workshops: MakeWorkshop, rabbitmq_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shop = workshops(broker=rabbitmq_url, backend=f"db+sqlite:///{tmp_path_factory.mktemp('sql')}/results.db")
    shop.worker("-c", "1")

    flow = chord([shop.task("add", number, 1) for number in range(3)], shop.task("total"), app=shop.app)
    assert shop.get(flow.apply_async()) == 6


def test_other_serialisers_where_they_are_allowed(workshops: MakeWorkshop, redis_url: str) -> None:
    shop = workshops(broker=redis_url, celery={"accept_content": ["json", "yaml"]})
    shop.worker("-c", "1")

    assert shop.get(shop.task("add", 1, 2).apply_async(serializer="yaml")) == 3
    assert "Refusing to deserialize" not in shop.log()


def test_pickle_is_refused_by_default(workshops: MakeWorkshop, redis_url: str) -> None:
    shop = workshops(broker=redis_url)
    shop.worker("-c", "1")

    shop.task("say", "unpickled").apply_async(serializer="pickle")
    assert shop.run("add", 1, 2) == 3
    assert "Refusing to deserialize" in shop.log()
    assert "unpickled" not in shop.notes()


def test_management_api_is_taken_out_of_the_url() -> None:
    url = "amqp://me:secret@host:5672/v?heartbeat=5&management=http://me:secret@host:15672"

    assert management_of(url) == "http://me:secret@host:15672"
    assert without_management(url) == "amqp://me:secret@host:5672/v?heartbeat=5"
    assert without_management("redis://h/0?management=x") == "redis://h/0?management=x"
