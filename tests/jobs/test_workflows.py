"""D3: workflows: chain, group, chord, map, starmap, chunks, immutable signatures, callbacks."""

from __future__ import annotations

import pytest
from celery import chain, chord, group
from celery.canvas import chunks, xmap, xstarmap
from celery.exceptions import ChordError

from tests.jobs.conftest import PATIENCE, MakeWorkshop, Workshop


@pytest.fixture(scope="module", params=["embedded", "redis", "rabbitmq"])
def shop(request: pytest.FixtureRequest, workshops: MakeWorkshop) -> Workshop:
    """On RabbitMQ results are on Redis: rpc:// has no chords."""
    settings = {}
    if request.param != "embedded":
        settings["broker"] = request.getfixturevalue(f"{request.param}_url")
    if request.param == "rabbitmq":
        settings["backend"] = request.getfixturevalue("redis_url")
    made: Workshop = workshops(**settings)
    made.worker("-c", "2")
    return made


def test_chain_hands_results_on(shop: Workshop) -> None:
    flow = chain(shop.task("add", 1, 2), shop.task("add", 3), shop.task("add_later", 4))

    assert shop.get(flow.apply_async()) == 10


def test_immutable_signature_takes_nothing_over(shop: Workshop) -> None:
    flow = chain(shop.task("add", 1, 2), shop.task("add", 5, 5).set(immutable=True))

    assert shop.get(flow.apply_async()) == 10


def test_group_runs_side_by_side(shop: Workshop) -> None:
    flow = group([shop.task("add", number, number) for number in range(5)], app=shop.app)

    assert shop.get(flow.apply_async()) == [0, 2, 4, 6, 8]


def test_chord_goes_on_when_all_are_done(shop: Workshop) -> None:
    flow = chord([shop.task("add", number, 1) for number in range(5)], shop.task("total"), app=shop.app)

    assert shop.get(flow.apply_async()) == 15


def test_chord_within_chain(shop: Workshop) -> None:
    flow = chain(
        group([shop.task("add", number, 1) for number in range(3)], app=shop.app),
        shop.task("total"),
        shop.task("add", 100),
    )

    assert shop.get(flow.apply_async()) == 106


def test_failure_in_chord_reaches_the_caller(shop: Workshop) -> None:
    """As the chord's error, which names the task, and as the task's own.

    Who waits for both gets the one that he sees first. The task's is stored before the chord's.
    """
    flow = chord([shop.task("add", 1, 1), shop.task("add", 1, "x")], shop.task("total"), app=shop.app)
    result = flow.apply_async()

    failed = result.parent[1].id
    with pytest.raises(ChordError, match=rf"Dependency {failed} raised TypeError\(.unsupported operand"):
        result.get(timeout=PATIENCE, follow_parents=False)
    with pytest.raises(TypeError, match="unsupported operand"):
        shop.get(result)


def test_map_and_starmap(shop: Workshop) -> None:
    assert shop.get(xmap(shop.task("total"), [[1, 2], [3]], app=shop.app).apply_async()) == [3, 3]
    assert shop.get(xstarmap(shop.task("add"), [[1, 2], [3, 4]], app=shop.app).apply_async()) == [3, 7]


def test_chunks(shop: Workshop) -> None:
    pairs = [[number, number] for number in range(5)]

    assert shop.get(chunks(shop.task("add"), pairs, 2, app=shop.app).group().apply_async()) == [[0, 2], [4, 6], [8]]


def test_link_is_called_with_the_result(shop: Workshop) -> None:
    shop.task("say", "first").apply_async(link=shop.task("say", "linked").set(immutable=True))

    shop.until_noted("linked")


def test_link_error_is_called_after_a_failure(shop: Workshop) -> None:
    shop.task("add", 1, "x").apply_async(link_error=shop.task("say", "something failed").set(immutable=True))

    shop.until_noted("something failed")
