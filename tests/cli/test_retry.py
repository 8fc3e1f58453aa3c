"""``weft retry``: dead letters back in line."""

from __future__ import annotations

import asyncio
import json

from tests.cli.conftest import HOST, Weft, depot_here, make_crawl, supervised
from weft.cli.crawls import Standing, opened, standing_of
from weft.engine.states import State


def standing(name: str = "shop") -> Standing:
    async def look() -> Standing:
        async with opened(depot_here(), name) as store:
            return await standing_of(depot_here(), name, store)

    return asyncio.run(look())


def test_all_of_a_crawl_that_finished(weft: Weft) -> None:
    make_crawl(state=State.FINISHED)
    told = weft("retry")
    assert told.code == 0
    assert told.out == "3 dead letters back in line; go on with: weft crawl shop.py\n"
    now = standing()
    assert (now.counts.dead, now.counts.pending) == (0, 7)
    assert now.state == State.STOPPED
    assert " pending " in weft("why", f"{HOST}/gone").out


def test_of_one_kind(weft: Weft) -> None:
    make_crawl()
    assert json.loads(weft("retry", "shop", "--kind", "handler", "--json").out)["revived"] == 1
    assert standing().counts.dead == 2


def test_one_url(weft: Weft) -> None:
    make_crawl()
    told = weft("retry", "--url", "shop.example/gone#here")
    assert told.code == 0
    assert told.out.startswith("1 dead letter back in line")
    assert standing().counts.dead == 2


def test_in_a_crawl_that_runs(weft: Weft) -> None:
    make_crawl(state=State.RUNNING)
    with supervised():
        told = weft("retry")
        assert standing().facts["state"] == State.RUNNING
    assert told.out == "3 dead letters back in line; the running crawl takes them up\n"


def test_a_crawl_that_was_moved_is_left_as_it_is(weft: Weft) -> None:
    make_crawl(reason="moved to redis://localhost")
    told = weft("retry")
    assert told.code == 1
    assert "moved to redis://localhost" in told.err
    assert standing().counts.dead == 3


def test_none_of_that_kind_or_url(weft: Weft) -> None:
    make_crawl(state=State.FINISHED)
    told = weft("retry", "--kind", "dns")
    assert told.code == 1
    assert "no dead letter of kind 'dns'; there are: " in told.err
    assert weft("retry", "--url", f"{HOST}/").code == 1
    assert standing().state == State.FINISHED


def test_none_at_all(weft: Weft) -> None:
    make_crawl()
    weft("retry")
    told = weft("retry")
    assert told.code == 0
    assert told.err == "no dead letter\n"


def test_no_crawl(weft: Weft) -> None:
    assert weft("retry").code == 4
    assert weft("retry", "nope").code == 4
    assert weft("retry", "--url", "no url").code == 2
