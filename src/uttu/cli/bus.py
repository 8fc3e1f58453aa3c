"""``uttu bus``: publish and print messages, and show consumer groups.

On a terminal, commands print tables. Otherwise, and with ``--json``, they print one line of JSON per message or group.
``subscribe`` acknowledges a message once it is printed, so a message that standard output did not take is delivered
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.live import Live

from uttu.cli.options import AsJson, BusUrl, GroupName, LoggedCommand, parse_pairs
from uttu.cli.output import Screen, build_table, format_count, print_json, say
from uttu.operations.bus import (
    Delivery,
    Group,
    MessageReader,
    SubscribeOptions,
    build_options,
    dead_reason,
    describe_bus,
    peek_messages,
    publish_messages,
    purge_group,
    read_groups,
    republish_dead,
    watch_group,
)
from uttu.operations.lines import MessageTemplate, delivery_dict, format_delivery

_SHOWN = 200  # characters of a payload in a table
_HEAD = ("group", "lag", "ready", "held", "delayed", "dead", "subscribers", "topics")
_NUMBERS = _HEAD[1:7]


def show_groups(groups: Sequence[Group], as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        for group in groups:
            _print_line(_group_dict(group))
    elif groups:
        Screen().table(_HEAD, [_row(group) for group in groups], _NUMBERS)
    else:
        say("no groups")


async def show_watched(url: str, name: str, as_json: bool) -> None:
    """Show the group once a second, until cancelled."""
    async with contextlib.aclosing(watch_group(url, name)) as looks:
        if as_json or not sys.stdout.isatty():
            async for groups in looks:
                show_groups(groups, True)
                sys.stdout.flush()
            return
        with Live(console=Console(highlight=False), auto_refresh=False) as live:
            async for groups in looks:
                live.update(build_table(_HEAD, [_row(group) for group in groups], _NUMBERS), refresh=True)


def show_messages(messages: Sequence[Delivery], as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        for message in messages:
            print(format_delivery(message))
    elif messages:
        reasons = [dead_reason(message) for message in messages]
        dead = any(reason is not None for reason in reasons)
        head = ("id", "topic", "key", "attempt", "payload", *(["reason"] if dead else []))
        rows = [
            (*_cells(message), *([reason or ""] if dead else []))
            for message, reason in zip(messages, reasons, strict=True)
        ]
        Screen().table(head, rows, ("attempt",))
    else:
        say("no messages")


def _group_dict(group: Group) -> dict[str, Any]:
    fields = msgspec.structs.asdict(group)
    return {"name": fields.pop("name"), "lag": group.lag, **fields}


def _row(group: Group) -> tuple[str, ...]:
    known = (group.lag, group.ready, group.unacknowledged, group.delayed, group.dead, group.subscribers)
    numbers = ["?" if each is None else f"{each:,}" for each in known]
    return (group.name, *numbers, "?" if group.topics is None else " ".join(group.topics))


def _cells(message: Delivery) -> tuple[str, ...]:
    shown = delivery_dict(message)
    payload = shown.get("payload", shown.get("text", shown.get("base64", "")))
    text = payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()
    return message.id, message.topic, message.key, str(message.attempt), text[:_SHOWN]


def _print_line(value: Any) -> None:
    print(msgspec.json.encode(value).decode())


async def print_messages(url: str, options: SubscribeOptions, count: int | None, seconds: float | None) -> None:
    """Print messages until ``count`` are printed, ``seconds`` have passed, or SIGINT or SIGTERM arrives.

    :raises BusError: the bus is not usable.
    :raises OSError: standard output cannot be written. Messages that it did not take are not acknowledged.
    """

    def receive(deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            print(format_delivery(delivery))
        sys.stdout.flush()

    def handle_signals() -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, reader.stop)

    loop = asyncio.get_running_loop()
    reader = MessageReader(receive, say, count, handle_signals)
    try:
        await reader.run(url, options, seconds)
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
    say(format_count(reader.received, "message"))


def publish(
    topic: Annotated[
        str,
        typer.Argument(help="Where to; words with dots between them.", metavar="TOPIC", show_default=False),
    ] = "",
    payloads: Annotated[
        list[str], typer.Argument(help="Payloads, each JSON.", metavar="JSON...", show_default=False)
    ] = [],  # noqa: B006
    file: Annotated[
        str,
        typer.Option(
            "-f",
            "--file",
            metavar="FILE",
            show_default=False,
            help="A file with a payload, as JSON, on each line; - for standard input.",
        ),
    ] = "",
    messages: Annotated[
        bool,
        typer.Option(
            "--messages", help="They are whole messages: topic, payload, key, headers, as subscribe prints them."
        ),
    ] = False,
    key: Annotated[str, typer.Option(help="Messages of one key belong together.", metavar="KEY")] = "",
    header: Annotated[
        list[str], typer.Option(help="A header. Can be repeated.", metavar="NAME=VALUE", show_default=False)
    ] = [],  # noqa: B006
    id: Annotated[str, typer.Option("--id", help="The id of the one message.", metavar="ID")] = "",
    priority: Annotated[int, typer.Option(help="0 to 9, 9 first.", min=0, max=9)] = 0,
    delay: Annotated[float, typer.Option(help="Deliver it after this many seconds.", metavar="SECONDS", min=0)] = 0,
    max_lag: Annotated[
        int | None,
        typer.Option(
            help="Wait while a group that takes the topic is behind by more messages.",
            metavar="N",
            min=0,
            show_default=False,
        ),
    ] = None,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:
    """Publish messages, and say how many the broker has confirmed."""
    if not (payloads or file):
        raise typer.BadParameter("give payloads, or a file of them with -f")
    if id and (file or len(payloads) > 1):
        raise typer.BadParameter("--id is for one message")
    if not (topic or messages):
        raise typer.BadParameter("give a topic")
    template = MessageTemplate(
        topic=topic, key=key, headers=parse_pairs(header, "--header"), id=id, priority=priority, delay=delay
    )
    try:
        template.check()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    published = asyncio.run(publish_messages(bus, template, payloads, file, say, whole=messages, max_lag=max_lag))
    if as_json:
        print_json({"confirmed": published.confirmed})
    else:
        print(f"{format_count(published.confirmed, 'message')} confirmed")
    if published.bad:
        raise typer.Exit(2)


def subscribe(
    topics: Annotated[
        list[str],
        typer.Argument(help="What to take; * stands for one word, # for any number.", metavar="TOPIC..."),
    ],
    group: Annotated[
        str,
        typer.Option(
            help="Share with the others of this group, and find what came while nobody listened.", metavar="GROUP"
        ),
    ] = "",
    where: Annotated[
        list[str],
        typer.Option(help="Only with this header. Can be repeated.", metavar="NAME=VALUE", show_default=False),
    ] = [],  # noqa: B006
    any_: Annotated[bool, typer.Option("--any", help="With one of the headers, not all of them.")] = False,
    count: Annotated[
        int | None,
        typer.Option(help="End after so many; 0 only makes the group.", metavar="N", min=0, show_default=False),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="End after so many seconds.", metavar="SECONDS", min=0, show_default=False)
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="A new group starts at the earliest message that is kept.")
    ] = False,
    prefetch: Annotated[int, typer.Option(help="How many to hold at most.", metavar="N", min=1)] = 500,
    bus: BusUrl = "",
) -> None:
    """Print each message as a line of JSON, then acknowledge it. Ctrl-C ends."""
    headers = parse_pairs(where, "--where")
    if any_ and not headers:
        raise typer.BadParameter("--any says how --where is meant; give that, too")
    try:
        options = build_options(
            topics, group, headers, match_any=any_, prefetch=prefetch, count=count, from_start=from_start
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    asyncio.run(print_messages(bus, options, count, seconds))


def groups(bus: BusUrl = "", as_json: AsJson = False) -> None:
    """Show the groups and how far behind they are. JSON lines if standard output is not a terminal."""
    show_groups(asyncio.run(read_groups(bus)), as_json)


def lag(
    group: GroupName,
    watch: Annotated[bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")] = False,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show what a group has not processed yet. JSON lines if standard output is not a terminal."""
    if not watch:
        show_groups(asyncio.run(read_groups(bus, group)), as_json)
        return
    # Ctrl-C is the only way to end a watch, so it is not a failure.
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(show_watched(bus, group, as_json))


def peek(
    group: GroupName,
    dead: Annotated[bool, typer.Option("--dead", help="Its dead letters, and why they are.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", help="How many.", min=1)] = 10,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show the next messages of a group. JSON lines if standard output is not a terminal."""
    show_messages(asyncio.run(peek_messages(bus, group, limit, dead=dead)), as_json)


def purge(
    group: GroupName,
    dead: Annotated[bool, typer.Option("--dead", help="Its dead letters instead.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="The group itself, with all it has.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; it can't be undone.")] = False,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:
    """Delete the waiting messages of a group. Messages that subscribers hold stay, unless the group is forgotten."""
    if not yes:
        raise typer.BadParameter("this can't be undone; say --yes")
    thrown = asyncio.run(purge_group(bus, group, dead=dead, forget=forget))
    if as_json:
        print_json({"group": group, "thrown": thrown, "forgotten": forget})
    else:
        print(
            f"{format_count(thrown, 'message')} thrown away" + (f"; the group {group} is forgotten" if forget else "")
        )


def republish(
    group: GroupName,
    limit: Annotated[int, typer.Option("-n", "--limit", help="How many at most, the oldest first.", min=1)] = 1000,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:
    """Return dead letters to their group, as messages that were never tried. Other groups don't get them again."""
    moved = asyncio.run(republish_dead(bus, group, limit))
    if as_json:
        print_json({"group": group, "republished": moved})
    else:
        print(f"{format_count(moved, 'dead letter')} republished to the group {group}")


def describe(bus: BusUrl = "", as_json: AsJson = False) -> None:
    """Show a broker: its version, topics, and its exchanges, bindings, partitions or keys."""
    found = asyncio.run(describe_bus(bus))
    if as_json or not sys.stdout.isatty():
        _print_line(found)
        return
    print(f"{found.version or found.kind}: {', '.join(found.nodes)}")
    if found.note:
        say(found.note)
    topics = [(each.name, "?" if each.messages is None else f"{each.messages:,}") for each in found.topics]
    if topics:
        Screen().table(("topic", "messages"), topics, ("messages",))
    for table in found.tables:
        print(f"\n{table.title}")
        rows = [tuple("" if cell is None else str(cell) for cell in row) for row in table.rows]
        Screen().table(table.columns, rows, ())


bus = typer.Typer(
    help="Publish messages, print them, and look how far their readers are.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

bus.command("publish")(publish)
bus.command("subscribe", cls=LoggedCommand)(subscribe)
bus.command("groups")(groups)
bus.command("lag")(lag)
bus.command("peek")(peek)
bus.command("purge")(purge)
bus.command("republish")(republish)
bus.command("describe")(describe)
