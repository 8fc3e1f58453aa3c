"""``python -m uttu.testing.site.hostile``: serve hostile hosts until interrupted."""

from __future__ import annotations

import argparse
import asyncio
import resource
import signal
import sys
import tempfile
from pathlib import Path

import msgspec
import uvloop

from uttu.testing.site.hostile import KINDS
from uttu.testing.site.hostile.model import Kind
from uttu.testing.site.hostile.server import serve


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m uttu.testing.site.hostile",
        description="Serve hosts that harm crawlers, one for each kind. Loopback only.",
    )
    parser.add_argument("kinds", nargs="*", help="names of kinds; all without")
    parser.add_argument("--list", action="store_true", help="print all kinds and end")
    parser.add_argument("--folder", type=Path, help="where certificates go")
    parser.add_argument("--piped", action="store_true", help="print the URLs as one line of JSON; end with the input")
    return parser.parse_args(argv)


async def run(kinds: tuple[Kind, ...], folder: Path, piped: bool) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serve(kinds, folder) as urls:
        if piped:
            loop.add_reader(0, stop.set)  # the parent sends nothing, so this is readable only when it is gone
            print(msgspec.json.encode(urls).decode(), flush=True)
        else:
            for name, url in urls.items():
                print(f"{name:40} {url}")
            print(f"authority: {folder / 'authority.pem'}", flush=True)
        await stop.wait()


def main(argv: list[str] | None = None) -> int:
    chosen = arguments(argv)
    known = {kind.name: kind for kind in KINDS}
    if chosen.list:
        for kind in KINDS:
            print(f"{kind.name:40} {kind.about}")
        return 0
    unknown = set(chosen.kinds) - known.keys()
    if unknown:
        print(f"There are no kinds {', '.join(sorted(unknown))}; --list prints all.", file=sys.stderr)
        return 2
    kinds = tuple(known[name] for name in chosen.kinds) or KINDS
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="uttu-hostile-") as folder:
        uvloop.run(run(kinds, chosen.folder or Path(folder), chosen.piped))
    return 0


if __name__ == "__main__":
    sys.exit(main())
