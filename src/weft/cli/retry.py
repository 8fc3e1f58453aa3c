"""``weft retry``: give dead letters another chance."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import AsJson, FrontierUrl
from weft.cli.targets import DeadKind, WhichCrawl


def retry(
    crawl: WhichCrawl = "",
    kind: DeadKind = "",
    url: Annotated[str, typer.Option(help="Only this one.", metavar="URL", show_default=False)] = "",
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Put dead letters back in line, as if they had never been tried; weft status --dead lists them.

    Exits with 1 if none is of that kind or URL.
    """
    import asyncio
    import contextlib

    from weft.cli.crawls import choose, depot_at, opened, standing_of
    from weft.cli.exits import FAILED
    from weft.cli.one_request import given_url
    from weft.cli.status_dead import kinds_of
    from weft.cli.steering import check_is_here
    from weft.cli.words import number, print_json, say
    from weft.engine.states import State

    async def revive() -> bool:
        async with depot_at(frontier) as depot:
            name, remark = await choose(depot, crawl)
            if remark:
                say(remark)
            async with opened(depot, name) as store:
                standing = await standing_of(depot, name, store)
                check_is_here(standing)
                running = standing.alive
                # A crawl that is not running must not begin to in the middle of this.
                async with contextlib.nullcontext() if running else depot.supervise(name):
                    revived = await store.inspector.revive(kind, wanted)
                    if revived and not running:
                        # A crawl that ended as it should would start anew; a stopped one goes on.
                        await store.ledger.note(state=State.STOPPED, reason="dead letters are back in line")
                    kinds = await store.inspector.dead_kinds()
        command = standing.command()
        if as_json:
            print_json({"crawl": name, "revived": revived, "running": running, "dead": kinds, "command": command})
        elif revived:
            then = "the running crawl takes them up" if running else f"go on with: {command}"
            print(f"{number(revived, 'dead letter')} back in line; {then}")
        else:
            which = f" {f'of kind {kind!r}' if kind else ''}{f'for {wanted}' if wanted else ''}" if kind or url else ""
            say(f"no dead letter{which}" + (f"; there are: {kinds_of(kinds)} (weft status --dead)" if kinds else ""))
        return revived > 0 or not (kind or url)

    wanted = given_url(url) if url else ""
    if not asyncio.run(revive()):
        raise typer.Exit(FAILED)
