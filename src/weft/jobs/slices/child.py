"""``python -m weft.jobs.slices.child``: one slice of a crawl, told on standard input what to do.

A process of its own, because a crawl has an event loop and threads that do not go with a pool of forked processes, and
so that whatever a spider does to its process, the pool lives on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import traceback
from pathlib import Path

import msgspec
import uvloop

from weft.errors import SpiderError, WeftError
from weft.jobs.slices.order import End, Order, Word
from weft.jobs.slices.reins import Reins
from weft.jobs.slices.work import Say, Work


def main() -> None:
    """Speaks on what was standard output; what a spider prints goes to standard error, the worker's log."""
    out = os.dup(1)
    os.dup2(2, 1)

    def say(word: Word) -> None:
        # If the task is gone, the pipe to here says so, too.
        with contextlib.suppress(BrokenPipeError), os.fdopen(out, "wb", closefd=False) as lines:
            lines.write(msgspec.json.encode(word) + b"\n")

    order = msgspec.json.decode(_first_line(), type=Order)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        say(runner.run(_word(order, say)))


def _first_line() -> bytes:
    """Byte by byte: what follows is not to be taken into a buffer."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            raise SystemExit("no order was given")
        line += byte
    return line


async def _word(order: Order, say: Say) -> Word:
    reins = Reins(order.seconds)
    work = Work(order, reins, say, _notice)
    try:
        if not Path(order.file).is_file():
            raise SpiderError(
                f"there is no spider file {order.file} on {socket.gethostname()}, in the worker's folder {Path.cwd()}"
            )
        if order.kind == "stop":
            await work.stop()
            return Word(end=End.STALE)
        reins.listen()
        return await work.run()
    except WeftError as error:
        return Word.of_error(error)
    except Exception as error:
        traceback.print_exc()
        return Word.of_error(error)
    finally:
        reins.deaf()


def _notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
