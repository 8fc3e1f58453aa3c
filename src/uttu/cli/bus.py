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

from uttu.bus.base import REASON_HEADER, Bus, Delivery, Group, SubscribeOptions, Subscription
from uttu.cli.options import AsJson, BusUrl, GroupName, LoggedCommand, parse_pairs
from uttu.cli.output import Screen, build_table, format_count, say
from uttu.clients import ConnectionState
from uttu.operations.bus import connect_configured_bus, delivery_dict, format_delivery

_LOOK_SECONDS = 1.0  # between two rounds of --watch
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


async def watch_group(bus: Bus, name: str, as_json: bool) -> None:
    """Show the group once a second, until cancelled."""
    if as_json or not sys.stdout.isatty():
        while True:
            show_groups(await bus.groups(name), True)
            sys.stdout.flush()
            await asyncio.sleep(_LOOK_SECONDS)
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            live.update(build_table(_HEAD, [_row(group) for group in await bus.groups(name)], _NUMBERS), refresh=True)
            await asyncio.sleep(_LOOK_SECONDS)


def show_messages(messages: Sequence[Delivery], as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        for message in messages:
            print(format_delivery(message))
    elif messages:
        dead = any(REASON_HEADER in message.headers for message in messages)
        head = ("id", "topic", "key", "attempt", "payload", *(["reason"] if dead else []))
        rows = [(*_cells(message), *([message.headers.get(REASON_HEADER, "")] if dead else [])) for message in messages]
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
    async with connect_configured_bus(url) as bus:
        bus.listen(_say_connection)
        printer = _Printer(count)
        subscription = await bus.subscribe(options, printer.handle)
        if count == 0:
            # Pause before a message is delivered, since that would count as an attempt.
            subscription.pause()
        printer.began.set_result(subscription)
        try:
            await _until_over(subscription, printer.over, seconds)
        finally:
            await subscription.close()
    if printer.error is not None:
        raise printer.error
    say(format_count(printer.printed, "message"))


class _Printer:
    def __init__(self, count: int | None) -> None:
        self.printed = 0
        self.error: OSError | None = None
        self.over = asyncio.Event()
        # Its own subscription, for :meth:`_end`. The first batch may arrive before ``subscribe`` returns.
        self.began: asyncio.Future[Subscription] = asyncio.get_running_loop().create_future()
        self._count = count
        if count == 0:
            self.over.set()

    async def handle(self, deliveries: list[Delivery]) -> None:
        try:
            for delivery in deliveries:
                print(format_delivery(delivery))
            sys.stdout.flush()
        except OSError as error:
            self.error = error
            await self._end()
            raise
        self.printed += len(deliveries)
        if self.printed == self._count:
            await self._end()

    async def _end(self) -> None:
        """Close the subscription, so that no more messages are delivered."""
        self.over.set()
        await (await self.began).close()


async def _until_over(subscription: Subscription, over: asyncio.Event, seconds: float | None) -> None:
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, over.set)
    ends = [asyncio.ensure_future(subscription.wait()), asyncio.ensure_future(over.wait())]
    try:
        done, _ = await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for end in done:
            end.result()
    finally:
        for end in ends:
            end.cancel()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)


def _say_connection(state: ConnectionState, what: str) -> None:
    if state is not ConnectionState.CLOSED:
        with contextlib.suppress(OSError):
            say(f"the connection is {state}: {what}")


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
    import asyncio

    from uttu.bus.topics import check_topic
    from uttu.cli.output import format_count, print_json, say
    from uttu.operations.bus import MessageTemplate, publish_messages

    if not (payloads or file):
        raise typer.BadParameter("give payloads, or a file of them with -f")
    if id and (file or len(payloads) > 1):
        raise typer.BadParameter("--id is for one message")
    if not (topic or messages):
        raise typer.BadParameter("give a topic")
    try:
        if topic:
            check_topic(topic)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    template = MessageTemplate(
        topic=topic, key=key, headers=parse_pairs(header, "--header"), id=id, priority=priority, delay=delay
    )
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
    import asyncio

    from uttu.bus.base import HeaderFilter, SubscribeOptions

    headers = parse_pairs(where, "--where")
    if any_ and not headers:
        raise typer.BadParameter("--any says how --where is meant; give that, too")
    try:
        options = SubscribeOptions(
            topics=tuple(topics),
            group=group,
            where=HeaderFilter(headers, any=any_) if headers else None,
            prefetch=prefetch if count is None else min(prefetch, max(count, 1)),
            # With --count, take messages one by one, so that only printed messages are acknowledged.
            batch=100 if count is None else 1,
            start="earliest" if from_start else "latest",
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    asyncio.run(print_messages(bus, options, count, seconds))


def groups(bus: BusUrl = "", as_json: AsJson = False) -> None:
    """Show the groups and how far behind they are. JSON lines if standard output is not a terminal."""
    import asyncio

    from uttu.operations.bus import connect_configured_bus

    async def show() -> None:
        async with connect_configured_bus(bus) as broker:
            show_groups(await broker.groups(), as_json)

    asyncio.run(show())


def lag(
    group: GroupName,
    watch: Annotated[bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")] = False,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show what a group has not processed yet. JSON lines if standard output is not a terminal."""
    import asyncio
    import contextlib

    from uttu.operations.bus import connect_configured_bus

    async def show() -> None:
        async with connect_configured_bus(bus) as broker:
            if watch:
                await watch_group(broker, group, as_json)
            else:
                show_groups(await broker.groups(group), as_json)

    # Ctrl-C is the only way to end a watch, so it is not a failure.
    with contextlib.suppress(*[KeyboardInterrupt] if watch else []):
        asyncio.run(show())


def peek(
    group: GroupName,
    dead: Annotated[bool, typer.Option("--dead", help="Its dead letters, and why they are.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", help="How many.", min=1)] = 10,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show the next messages of a group. JSON lines if standard output is not a terminal."""
    import asyncio

    from uttu.operations.bus import connect_configured_bus

    async def show() -> None:
        async with connect_configured_bus(bus) as broker:
            show_messages(await broker.peek(group, limit, dead=dead), as_json)

    asyncio.run(show())


def purge(
    group: GroupName,
    dead: Annotated[bool, typer.Option("--dead", help="Its dead letters instead.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="The group itself, with all it has.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; it can't be undone.")] = False,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:
    """Delete the waiting messages of a group. Messages that subscribers hold stay, unless the group is forgotten."""
    import asyncio

    from uttu.cli.output import format_count, print_json
    from uttu.operations.bus import connect_configured_bus

    if not yes:
        raise typer.BadParameter("this can't be undone; say --yes")

    async def throw() -> int:
        async with connect_configured_bus(bus) as broker:
            return await broker.purge(group, dead=dead, forget=forget)

    thrown = asyncio.run(throw())
    if as_json:
        print_json({"group": group, "thrown": thrown, "forgotten": forget})
    else:
        print(
            f"{format_count(thrown, 'message')} thrown away" + (f"; the group {group} is forgotten" if forget else "")
        )


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
