"""One drains a sink at a time: waiting, taking over, losing the claim, and who completes the output."""

from __future__ import annotations

import asyncio

import pytest

from tests.engine.test_exporter import MemoryOutbox, MemorySink, draining, ids, until
from uttu.engine import exporter as drain_module
from uttu.engine import sink_writer
from uttu.frontier.base import Cursor

ROLE = "drain memory"


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "INTERVAL_SECONDS", 0.001)


async def test_a_sink_is_claimed_before_it_is_opened_and_given_up_at_the_end() -> None:
    outbox, sink = MemoryOutbox(3), MemorySink()
    held: list[dict[str, str]] = []
    sink.on_open = lambda state: held.append(dict(outbox.roles))
    drain = draining(outbox, [sink])
    await drain.open()
    assert held == [{ROLE: "me"}]
    await drain.finish(finished=True)
    assert outbox.roles == {}


async def test_what_another_drains_is_waited_for_beside_the_work_and_taken_over() -> None:
    outbox, free, taken = MemoryOutbox(3), MemorySink("free"), MemorySink()
    outbox.roles[ROLE] = "you"
    drain, stop = draining(outbox, [taken, free]), asyncio.Event()
    await drain.open()
    assert drain.elsewhere == {"memory": "you"}
    running = asyncio.create_task(drain.run(stop))
    await until(lambda: len(free.ids) == 3)
    assert taken.events == []
    # The other came this far, and is gone.
    taken.ids = ids(outbox)[:2]
    outbox.cursors["memory"] = Cursor(outbox.stored[1].position, b"2")
    del outbox.roles[ROLE]
    await until(lambda: len(taken.ids) == 3)
    assert drain.elsewhere == {}
    stop.set()
    await running
    await drain.finish(finished=True)
    assert taken.ids == ids(outbox)
    assert taken.events == ["open 2", "write", "finished"]


async def test_finishing_leaves_a_sink_to_the_living_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_writer, "CLAIM_SECONDS", 0.0)  # longer refused than a claim lasts: it is renewed
    outbox, sink = MemoryOutbox(3), MemorySink()
    outbox.roles[ROLE] = "you"
    drain = draining(outbox, [sink])
    async with asyncio.timeout(5):
        await drain.finish(finished=True)
    assert sink.events == ["closed"]
    assert drain.elsewhere == {"memory": "you"}
    assert outbox.roles == {ROLE: "you"}


async def test_finishing_waits_for_the_claim_of_one_that_may_be_dead() -> None:
    outbox, sink = MemoryOutbox(3), MemorySink()
    outbox.roles[ROLE] = "you"
    drain = draining(outbox, [sink])
    finishing = asyncio.create_task(drain.finish(finished=True))
    await until(lambda: outbox.claims > 3)
    assert not finishing.done()
    del outbox.roles[ROLE]
    async with asyncio.timeout(5):
        await finishing
    assert sink.ids == ids(outbox)
    assert sink.events[-1] == "finished"


async def test_a_batch_written_without_the_claim_does_not_count() -> None:
    outbox, sink = MemoryOutbox(3), MemorySink()
    # The claim runs out while the batch is written, and another takes it.
    sink.on_write = lambda items: outbox.roles.update({ROLE: "you"})
    drain, stop = draining(outbox, [sink]), asyncio.Event()
    running = asyncio.create_task(drain.run(stop))
    await until(lambda: drain.elsewhere == {"memory": "you"})
    assert sink.events == ["open", "write", "closed"]
    assert outbox.cursors == {}
    sink.on_write = lambda items: None
    del outbox.roles[ROLE]
    await until(lambda: bool(outbox.cursors))
    stop.set()
    await running
    await drain.finish(finished=True)
    assert sink.ids == ids(outbox)
    assert sink.events == ["open", "write", "closed", "open", "write", "finished"]


async def test_a_claim_lost_and_regained_unnoticed() -> None:
    """A process that was stopped meanwhile goes on from where the other came to, not from where it was itself."""
    outbox, sink, stop = MemoryOutbox(2), MemorySink(), asyncio.Event()
    drain = draining(outbox, [sink])
    running = asyncio.create_task(drain.run(stop))
    await until(lambda: outbox.cursors.get("memory", Cursor()).state == b"2")
    asked = len(outbox.asked)
    await until(lambda: len(outbox.asked) > asked)
    # In one step of the loop: another wrote two more.
    outbox.add(2)
    sink.ids = ids(outbox)
    outbox.cursors["memory"] = Cursor(outbox.stored[3].position, b"4")
    outbox.add(1)
    await until(lambda: len(sink.ids) == 5)
    stop.set()
    await running
    await drain.finish(finished=True)
    assert sink.ids == ids(outbox)
    assert "open 4" in sink.events


async def test_a_claim_is_renewed_while_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_writer, "CLAIM_SECONDS", 0.003)
    outbox = MemoryOutbox()
    claim = sink_writer.Claim(outbox, "role", "me")
    assert await claim.take()
    await until(lambda: outbox.claims > 5)
    assert claim.held
    outbox.roles["role"] = "you"
    await until(lambda: not claim.held)
    assert not await claim.take()
    assert await claim.holder() == "you"
    await claim.give_up()
    assert outbox.roles == {"role": "you"}
