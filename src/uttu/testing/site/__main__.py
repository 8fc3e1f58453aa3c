"""``python -m uttu.testing.site``: serve a test site until interrupted."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from uttu.testing.site.model import Site
from uttu.testing.site.server import Running, serve


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    defaults = Site()
    parser = argparse.ArgumentParser(
        prog="python -m uttu.testing.site",
        description="Serve a site made for testing crawlers: pages, a shop, oddities, traps. Loopback only.",
    )
    parser.add_argument("--seed", type=int, default=defaults.seed, help="another seed, another site (%(default)s)")
    parser.add_argument("--hosts", type=int, default=defaults.hosts, help="how many addresses (%(default)s)")
    parser.add_argument("--base", default=defaults.base, help="the first address (%(default)s)")
    parser.add_argument("--port", type=int, default=defaults.port, help="0 takes a free one (%(default)s)")
    parser.add_argument(
        "--pages", type=int, default=defaults.pages, help="ordinary pages, over all hosts (%(default)s)"
    )
    parser.add_argument("--links", type=int, default=defaults.links, help="links on each page (%(default)s)")
    parser.add_argument("--page-bytes", type=int, default=defaults.page_bytes, help="size of a page (%(default)s)")
    parser.add_argument("--products", type=int, default=defaults.products, help="products in the shop (%(default)s)")
    parser.add_argument(
        "--latency", type=float, default=defaults.latency, help="seconds before each answer (%(default)s)"
    )
    parser.add_argument("--crawl-delay", type=float, help="seconds, for robots.txt")
    parser.add_argument("--certificate", default="", help="PEM file; serves https")
    parser.add_argument("--key", default="", help="PEM file of its key, if it is another one")
    parser.add_argument("--site", type=Path, help="JSON file that describes the site; replaces all of the above")
    parser.add_argument("--log", type=Path, help="file that gets a JSON line for each request")
    parser.add_argument("--piped", action="store_true", help="end with standard input; a line there writes the log")
    return parser.parse_args(argv)


def site_of(chosen: argparse.Namespace) -> Site:
    """The site that the options describe.

    :raises ValueError: the options do not describe a valid site.
    """
    if chosen.site:
        return msgspec.json.decode(chosen.site.read_bytes(), type=Site)
    return Site(**{name: value for name, value in vars(chosen).items() if name in Site.__struct_fields__})


async def run(site: Site, log: Path | None, piped: bool) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serve(site, log=log, keep=False) as running:
        if piped:
            loop.add_reader(0, _heed, running, stop)
        print("ready", running.url, flush=True)
        # Exclude the objects created so far from garbage collection: they live until the end.
        gc.freeze()
        await stop.wait()
        if piped:
            loop.remove_reader(0)


def _heed(running: Running, stop: asyncio.Event) -> None:
    """Handle input from the parent process: each line asks for a flush of the log, the end of input ends the site."""
    data = os.read(0, 4096)
    if not data:
        stop.set()
    for _ in range(data.count(b"\n")):
        running.flush()
        print("flushed", flush=True)


def main(argv: list[str] | None = None) -> int:
    chosen = arguments(argv)
    # Raise the limit of open files: there may be hundreds of hosts, each with a listening socket and clients.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    try:
        uvloop.run(run(site_of(chosen), chosen.log, chosen.piped))
    except (OSError, ValueError) as error:
        print(f"The test site can't run: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
