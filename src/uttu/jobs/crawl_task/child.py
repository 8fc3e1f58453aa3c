"""``python -m uttu.jobs.crawl_task.child``: run one slice of a crawl, with its request on standard input.

It is a separate process because a crawl has an event loop and threads, which do not fit into a pool of forked
processes, and so that a spider that harms its process does not harm the pool.
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

from uttu.blackbox import inherited, is_harmed
from uttu.engine.worker_processes import HARMED
from uttu.errors import SpiderError, UttuError
from uttu.jobs.crawl_task.protocol import SliceEnd, SliceEvent, SliceRequest
from uttu.jobs.crawl_task.runner import SendEvent, SliceControl, SliceRunner
from uttu.runtime import logs


def main() -> None:
    """Run the slice. Events go to the original standard output; a spider's prints go to standard error, the worker's
    log.
    """
    out = os.dup(1)
    os.dup2(2, 1)

    def say(word: SliceEvent) -> None:
        # If the task is gone, the closed input pipe says so too.
        with contextlib.suppress(BrokenPipeError), os.fdopen(out, "wb", closefd=False) as lines:
            lines.write(msgspec.json.encode(word) + b"\n")

    inherited()  # before the spider is loaded: programs that it starts must not see the variable
    order = msgspec.json.decode(_read_first_line(), type=SliceRequest)
    logs.set_up()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        say(runner.run(_run_request(order, say)))


def _read_first_line() -> bytes:
    """Read byte by byte: the lines that follow must not end up in a buffer."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            raise SystemExit("no order was given")
        line += byte
    return line


async def _run_request(order: SliceRequest, say: SendEvent) -> SliceEvent:
    reins = SliceControl(order.seconds)
    work = SliceRunner(order, reins, say, _print_notice)
    try:
        if not Path(order.file).is_file():
            raise SpiderError(
                f"there is no spider file {order.file} on {socket.gethostname()}, in the worker's folder {Path.cwd()}"
            )
        if order.kind == "stop":
            await work.stop()
            return SliceEvent(end=SliceEnd.STALE)
        reins.listen()
        return await work.run()
    except UttuError as error:
        _end_if_harmed()
        return SliceEvent.of_error(error)
    except Exception as error:
        _end_if_harmed()
        traceback.print_exc()
        return SliceEvent.of_error(error)
    finally:
        reins.deaf()


def _end_if_harmed() -> None:
    """Exit if a handler has harmed this process, which is why it fails: the task starts another process."""
    if is_harmed():
        os._exit(HARMED)


def _print_notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
