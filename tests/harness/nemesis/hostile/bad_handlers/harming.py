"""Handlers that harm their process, and what it shares with the crawl."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import ctypes
import gc
import json
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Final

import msgspec

from uttu import Page

_FOLDER: Final = Path.cwd()
_MB: Final = 1024 * 1024


def exits_0(page: Page) -> None:
    """os._exit(0)"""
    os._exit(0)


def exits_1(page: Page) -> None:
    """os._exit(1)"""
    os._exit(1)


def segfault(page: Page) -> None:
    """a segmentation fault"""
    ctypes.string_at(0)


def aborts(page: Page) -> None:
    """os.abort()"""
    os.abort()


def kills_itself(page: Page) -> None:
    """kill -9 of its own process"""
    os.kill(os.getpid(), signal.SIGKILL)


def exhausts_stack(page: Page) -> None:
    """a stack overflow in C"""
    sys.setrecursionlimit(10**9)
    nested: Any = ()
    for _ in range(1_000_000):
        nested = (nested,)
    hash(nested)


def forks(page: Page) -> dict[str, str]:
    """a fork whose child goes on with the crawl"""
    os.fork()
    return {"url": page.url}


def forks_and_waits(page: Page) -> dict[str, str]:
    """a fork whose child sleeps for 70 seconds"""
    if os.fork() == 0:
        time.sleep(70)
        os._exit(0)
    return {"url": page.url}


def leaves_program(page: Page) -> dict[str, str]:
    """a program left running, with our standard output"""
    subprocess.Popen(["sleep", "70"])
    return {"url": page.url}


def leaves_thread(page: Page) -> dict[str, str]:
    """a thread left waiting"""
    threading.Thread(target=time.sleep, args=(70,)).start()
    return {"url": page.url}


def leaves_busy_thread(page: Page) -> dict[str, str]:
    """a thread left busy for ten seconds"""
    until = time.monotonic() + 10

    def spin() -> None:
        while time.monotonic() < until:
            pass

    threading.Thread(target=spin, daemon=True).start()
    return {"url": page.url}


async def leaves_task(page: Page) -> dict[str, str]:
    """a task left running"""
    _TASKS.append(asyncio.create_task(asyncio.sleep(70)))
    return {"url": page.url}


_TASKS: list[asyncio.Task[None]] = []


def leaves_pool(page: Page) -> dict[str, str]:
    """100 calls in the loop's threads, a minute each"""
    for _ in range(100):
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 70)
    return {"url": page.url}


def leaves_process(page: Page) -> dict[str, str]:
    """a process of multiprocessing left running"""
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(70,)).start()
    return {"url": page.url}


async def leaves_deaf_task(page: Page) -> dict[str, str]:
    """a task left running that ignores its cancellation"""

    async def stay() -> None:
        while True:
            with contextlib.suppress(BaseException):
                await asyncio.sleep(70)

    _TASKS.append(asyncio.create_task(stay()))
    return {"url": page.url}


async def leaves_exit(page: Page) -> dict[str, str]:
    """a task left behind that raises SystemExit"""

    async def leave() -> None:
        sys.exit(0)

    _TASKS.append(asyncio.create_task(leave()))
    return {"url": page.url}


async def leaves_interrupt(page: Page) -> dict[str, str]:
    """a timer left behind that raises KeyboardInterrupt"""

    def interrupt() -> None:
        raise KeyboardInterrupt

    asyncio.get_running_loop().call_later(0.05, interrupt)
    return {"url": page.url}


async def cancels_all_later(page: Page) -> dict[str, str]:
    """a task left behind that cancels every task of the loop"""

    async def cancel() -> None:
        await asyncio.sleep(0.05)
        for task in asyncio.all_tasks():
            task.cancel()

    _TASKS.append(asyncio.create_task(cancel()))
    return {"url": page.url}


def exits_later(page: Page) -> dict[str, str]:
    """os._exit(0) in a thread, after the handler"""
    threading.Timer(0.3, os._exit, (0,)).start()
    return {"url": page.url}


def stops_itself(page: Page) -> dict[str, str]:
    """SIGSTOP of its own process"""
    os.kill(os.getpid(), signal.SIGSTOP)
    return {"url": page.url}


def masks_signals(page: Page) -> dict[str, str]:
    """masks every signal"""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return {"url": page.url}


def replaces_output(page: Page) -> dict[str, str]:
    """replaces sys.stdout and sys.stderr with an object that can't write"""
    sys.stdout = sys.stderr = object()
    return {"url": page.url}


def removes_output(page: Page) -> dict[str, str]:
    """sets sys.stdout and sys.stderr to None"""
    sys.stdout = sys.stderr = None
    return {"url": page.url}


def closes_output(page: Page) -> dict[str, str]:
    """closes standard output and error"""
    sys.stdout.close()
    sys.stderr.close()
    return {"url": page.url}


def closes_descriptors(page: Page) -> dict[str, str]:
    """closes file descriptors 0 to 2"""
    os.closerange(0, 3)
    return {"url": page.url}


def closes_everything(page: Page) -> dict[str, str]:
    """closes all file descriptors"""
    os.closerange(0, 1024)
    return {"url": page.url}


def deletes_store(page: Page) -> dict[str, str]:
    """deletes the crawl's folder"""
    shutil.rmtree(_FOLDER / ".uttu")
    return {"url": page.url}


def changes_folder(page: Page) -> dict[str, str]:
    """changes the working folder"""
    os.chdir("/")
    return {"url": page.url}


def clears_environment(page: Page) -> dict[str, str]:
    """clears the environment"""
    os.environ.clear()
    return {"url": page.url}


def ignores_signals(page: Page) -> dict[str, str]:
    """ignores SIGTERM and SIGINT"""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return {"url": page.url}


def sets_policy(page: Page) -> dict[str, str]:
    """sets another event loop"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.set_event_loop(None)
    return {"url": page.url}


async def stops_loop(page: Page) -> dict[str, str]:
    """stops the event loop"""
    asyncio.get_running_loop().stop()
    return {"url": page.url}


def runs_loop(page: Page) -> dict[str, str]:
    """calls asyncio.run in the loop"""
    coroutine = asyncio.sleep(0)
    try:
        asyncio.run(coroutine)
    finally:
        coroutine.close()
    return {"url": page.url}


async def cancels_all(page: Page) -> dict[str, str]:
    """cancels every task of the loop"""
    for task in asyncio.all_tasks():
        task.cancel()
    return {"url": page.url}


def disables_gc(page: Page) -> dict[str, str]:
    """turns the garbage collector off"""
    gc.disable()
    return {"url": page.url}


def prints_much(page: Page) -> dict[str, str]:
    """prints 50 MB"""
    for _ in range(50):
        print("x" * _MB)
    return {"url": page.url}


def logs_much(page: Page) -> dict[str, str]:
    """logs 100,000 lines"""
    for number in range(100_000):
        logging.getLogger("spider").error("line %d", number)
    return {"url": page.url}


def patches_json(page: Page) -> dict[str, str]:
    """replaces the functions of json and msgspec.json"""
    for module, name in ((json, "dumps"), (json, "loads"), (msgspec.json, "encode"), (msgspec.json, "decode")):
        setattr(module, name, lambda *_args, **_named: "nonsense")
    return {"url": page.url}


def patches_time(page: Page) -> dict[str, str]:
    """replaces time.time and time.monotonic"""
    time.time = time.monotonic = lambda: 0.0
    return {"url": page.url}


def patches_open(page: Page) -> dict[str, str]:
    """replaces open and print"""
    builtins.open = builtins.print = None  # type: ignore[assignment]
    return {"url": page.url}


def warns(page: Page) -> dict[str, str]:
    """turns warnings into errors, and warns"""
    warnings.simplefilter("error")
    warnings.warn("careful", stacklevel=1)
    return {"url": page.url}


def limits_recursion(page: Page) -> dict[str, str]:
    """sets the recursion limit to 60"""
    sys.setrecursionlimit(60)
    return {"url": page.url}


def limits_files(page: Page) -> dict[str, str]:
    """allows no more open files"""
    resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))
    return {"url": page.url}


def limits_file_size(page: Page) -> dict[str, str]:
    """allows no file to grow"""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
    return {"url": page.url}
