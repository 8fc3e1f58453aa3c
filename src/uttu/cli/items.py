"""``uttu push``, ``retry``, ``items``, ``export`` and ``move``: the contents of a crawl, from start URLs to items."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from uttu.cli.options import AsJson, DeadKind, DeadMessage, FrontierUrl, GivenCrawl, WhichCrawl, find_operator

if TYPE_CHECKING:
    from uttu.operations.move import Renamed


def push(
    crawl: GivenCrawl,
    urls: Annotated[list[str], typer.Argument(help="URLs to start from.", metavar="URL...", show_default=False)] = [],  # noqa: B006
    file: Annotated[
        str,
        typer.Option(
            "-f",
            "--file",
            metavar="FILE",
            show_default=False,
            help="A file with a URL, or a request as a JSON object, on each line; - for standard input.",
        ),
    ] = "",
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Add start URLs to a crawl. URLs that it knows already are skipped.

    Exits with 1 if some entries are not web URLs; the others are added.
    """
    import asyncio

    from uttu.cli.output import format_count, print_json, say
    from uttu.errors import FAILED
    from uttu.operations.seeds import push_seeds

    if not (urls or file):
        raise typer.BadParameter("Give URLs, or a file with -f")
    pushed = asyncio.run(push_seeds(crawl, frontier, urls, file, say, by=find_operator()))
    if as_json:
        print_json({"crawl": pushed.crawl, "new": pushed.new, "known": pushed.known, "bad": pushed.bad})
    else:
        known = f", {pushed.known:,} were known already" if pushed.known else ""
        print(f"{format_count(pushed.new, 'new page')} for {pushed.crawl}{known}; {pushed.then}")
    if pushed.bad:
        say(f"{format_count(pushed.bad, 'entry', 'entries')} could not be used")
        raise typer.Exit(FAILED)


def retry(
    crawl: WhichCrawl = "",
    kind: DeadKind = "",
    url: Annotated[str, typer.Option(help="Only the request for this URL.", metavar="URL", show_default=False)] = "",
    message: DeadMessage = "",
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Queue dead letters again, as if they had never been tried; uttu status --dead lists them.

    Exits with 1 if there is no dead letter of that kind, URL or message.
    """
    import asyncio

    from uttu.cli.options import parse_url_argument
    from uttu.cli.output import format_count, format_kinds, print_json, say
    from uttu.errors import FAILED
    from uttu.operations.control import retry_dead

    wanted = parse_url_argument(url) if url else ""
    work = retry_dead(crawl, frontier, say, kind=kind, url=wanted, message=message, by=find_operator())
    found = asyncio.run(work)
    status, revived = found.status, found.revived
    if as_json:
        print_json(
            {
                "crawl": status.name,
                "revived": revived,
                "running": status.alive,
                "dead": found.kinds,
                "command": status.command(),
            }
        )
    elif revived:
        then = "the running crawl fetches them" if status.alive else f"resume it with: {status.command()}"
        print(f"{format_count(revived, 'dead letter')} queued again; {then}")
    else:
        given = {"of kind": repr(kind) if kind else "", "with": repr(message) if message else "", "for": wanted}
        which = "".join(f" {word} {value}" for word, value in given.items() if value)
        left = f"; there are: {format_kinds(found.kinds)} (uttu status --dead)" if found.kinds else ""
        say(f"no dead letter{which}{left}")
    if not revived and (kind or url or message):
        raise typer.Exit(FAILED)


def items(
    crawl: WhichCrawl = "",
    match: Annotated[
        str, typer.Option(help="Only items with this text, in any case.", metavar="TEXT", show_default=False)
    ] = "",
    limit: Annotated[int, typer.Option("-n", "--limit", help="How many to list.", min=1)] = 20,
    before: Annotated[
        int, typer.Option(help="Only items before this position.", metavar="POSITION", min=0, show_default=False)
    ] = 0,
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show the latest items of a crawl, or search them. uttu export writes all to a file."""
    import asyncio

    from uttu.cli.output import Screen, print_json, say
    from uttu.operations.items import read_items

    found = asyncio.run(read_items(crawl, frontier, limit, before, match, say))
    if as_json:
        for each in found.items:
            print_json(each.value)
    elif found.items:
        rows = [[_format_cell(each.value.get(name)) for name in found.columns] for each in found.items]
        Screen().table(found.columns, rows)
    else:
        say("no items" + (f" with {match!r} among those that were looked at" if match and found.next else ""))
    if found.next:
        say(f"there are more: --before {found.next}")


# The longest text in a cell of a table of items.
_LONGEST_CELL = 60


def _format_cell(value: object) -> str:
    import msgspec

    text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def export(
    crawl: WhichCrawl = "",
    output: Annotated[
        list[str],
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            show_default="-",
            help="Where items go: .jsonl, .json, .csv, .parquet, .db, - for standard output, or a topic of a message "
            "broker: redis://…?topic=T. Can be given several times.",
        ),
    ] = [],  # noqa: B006
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Follow the crawl until it ends. Run again to continue where it stopped."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that another program wrote.")] = False,
    frontier: FrontierUrl = "",
    as_json: AsJson = False,
) -> None:
    """Write all items of a crawl so far, beginning with the first. Files that Uttu wrote before are replaced."""
    import asyncio
    import signal
    import sys

    import msgspec

    from uttu.cli.output import format_count, say
    from uttu.errors import BY_SIGNAL
    from uttu.operations.items import ExportResult, export_items

    received = 0

    def following(stop: Callable[[], None]) -> None:
        """From now on, a signal ends the export and closes the outputs."""

        def receive(number: int) -> None:
            nonlocal received
            received = number
            stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, receive, number)

    async def run() -> ExportResult:
        follows = following if follow else None
        return await export_items(
            crawl, frontier, output or ["-"], say, follow=follows, overwrite=overwrite, by=find_operator()
        )

    done = asyncio.run(run())
    if as_json:
        print(msgspec.json.encode(done).decode(), file=sys.stderr if "-" in done.items else sys.stdout)
    else:
        for target, count in done.items.items():
            where = "standard output" if target == "-" else target
            say(f"{format_count(count, 'item')} of {done.crawl} to {where}")
    raise typer.Exit(BY_SIGNAL + received if received else 0)


_PLACE = "The URL of a frontier, or the folder that has the .uttu folder."


def move(
    source: Annotated[str, typer.Argument(help=_PLACE, metavar="FROM", show_default=False)] = "",
    target: Annotated[str, typer.Argument(help="The same.", metavar="TO", show_default=False)] = "",
    crawl: Annotated[
        str, typer.Option("--crawl", help="Which crawl, if there are several.", metavar="NAME", show_default=False)
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Replace a crawl of this name at TO.")] = False,
    rename: Annotated[
        bool,
        typer.Option(
            "--rename", help="Rename the files or keys of Weft, Uttu's former name, at FROM; in this folder by default."
        ),
    ] = False,
) -> None:
    """Move a paused or stopped crawl, with all its data, to another frontier."""
    import asyncio

    from uttu.operations.move import move_crawl, rename_former

    if rename:
        if target or crawl or replace:
            raise typer.BadParameter("--rename takes one place, and no other option")
        _print_renamed(asyncio.run(rename_former(source or ".")))
        return
    if not target:
        raise typer.BadParameter("Give both places: uttu move FROM TO")
    with _draw_progress() as progress:
        said = asyncio.run(move_crawl(source, target, crawl, replace=replace, progress=progress, by=find_operator()))
    print(said)


@contextlib.contextmanager
def _draw_progress() -> Iterator[Callable[[float], None]]:
    """Show the share that is moved, if standard error is a terminal. The line is removed at the end of the block."""
    drawn = False

    def draw(share: float) -> None:
        nonlocal drawn
        if sys.stderr.isatty():
            drawn = True
            print(f"\rmoving: {min(99, int(100 * share))} %", end="", file=sys.stderr, flush=True)

    try:
        yield draw
    finally:
        if drawn:
            print("\r" + " " * 16 + "\r", end="", file=sys.stderr, flush=True)


def _print_renamed(done: Renamed) -> None:
    from uttu.cli.output import format_count

    lines = [f"{name} renamed" for name in done.files]
    lines += [f"{format_count(done.keys, 'key')} renamed on {done.place}"] if done.keys else []
    for what, names in (("crawls", done.crawls), ("schedules of", done.apps), ("buses", done.buses)):
        lines += [f"  {what}: {', '.join(names)}"] if names else []
    print("\n".join(lines) or f"Nothing to rename at {done.place}")
