"""``weft bus``: messages, without writing code."""

from __future__ import annotations

import typer

from weft.cli import bus_groups, bus_lag, bus_peek, bus_publish, bus_purge, bus_subscribe

bus = typer.Typer(
    help="Publish messages, print them, and look how far their readers are.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

bus.command("publish")(bus_publish.publish)
bus.command("subscribe")(bus_subscribe.subscribe)
bus.command("groups")(bus_groups.groups)
bus.command("lag")(bus_lag.lag)
bus.command("peek")(bus_peek.peek)
bus.command("purge")(bus_purge.purge)
