"""``weft bus publish``: send messages."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import AsJson, BusUrl, pairs


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
            "-f", "--file", metavar="FILE", show_default=False,
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
    delay: Annotated[float, typer.Option(help="Hand out after so many seconds.", metavar="SECONDS", min=0)] = 0,
    max_lag: Annotated[
        int | None,
        typer.Option(
            help="Wait while a group that takes the topic is behind by more messages.", metavar="N", min=0,
            show_default=False,
        ),
    ] = None,
    bus: BusUrl = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Publish messages, and say how many the broker has confirmed."""
    import asyncio

    from weft.bus.topics import check_topic
    from weft.cli.bus_messages import Template
    from weft.cli.bus_publishing import publish_all
    from weft.cli.words import number, print_json

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
    template = Template(
        topic=topic, key=key, headers=pairs(header, "--header"), id=id, priority=priority, delay=delay
    )  # fmt: skip
    published = asyncio.run(publish_all(bus, template, payloads, file, whole=messages, max_lag=max_lag))
    if as_json:
        print_json({"confirmed": published.confirmed})
    else:
        print(f"{number(published.confirmed, 'message')} confirmed")
    if published.bad:
        raise typer.Exit(2)
