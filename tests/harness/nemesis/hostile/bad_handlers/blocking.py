"""Handlers that block the event loop, or never come to an end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from uttu import Page


def while_true(page: Page) -> None:
    """while True: pass"""
    while True:
        pass


async def while_true_async(page: Page) -> None:
    """while True: pass, in a coroutine"""
    while True:
        pass


def while_true_deaf(page: Page) -> None:
    """while True that catches every exception"""
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def sleeps(page: Page) -> None:
    """time.sleep(70)"""
    time.sleep(70)


def regex(page: Page) -> None:
    """a catastrophic regular expression"""
    re.match(r"(a+)+$", "a" * 60 + "b")


def holds_gil(page: Page) -> None:
    """a C call that never gives up the interpreter lock"""
    any(itertools.repeat(False))


def waits_for_lock(page: Page) -> None:
    """a lock that nobody releases"""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def reads_socket(page: Page) -> None:
    """a blocking read from a socket that stays silent"""
    near, far = socket.socketpair()
    near.recv(1)
    far.close()


def waits_for_child(page: Page) -> None:
    """waits for a program that runs for 70 seconds"""
    subprocess.run(["sleep", "70"], check=False)


def slow_generator(page: Page) -> Iterator[dict[str, int]]:
    """a second between two items, 70 times"""
    for number in range(70):
        time.sleep(1)
        yield {"n": number}


def ignores_all_signals(page: Page) -> None:
    """while True that ignores every signal"""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def masks_signals_and_sleeps(page: Page) -> None:
    """time.sleep(70) with every signal masked"""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(70)


def error_text(page: Page) -> None:
    """raises an error whose text never ends"""
    raise _Endless


class _Endless(Exception):
    def __str__(self) -> str:
        while True:
            pass


def blocks_in_cleanup(page: Page) -> Iterator[object]:
    """yields what it may not, and sleeps in its finally"""
    try:
        yield object()
    finally:
        time.sleep(70)


def starves_threads(page: Page) -> None:
    """a busy thread, after sys.setswitchinterval(1000)"""

    def spin() -> None:
        while True:
            pass

    sys.setswitchinterval(1000)
    threading.Thread(target=spin, daemon=True).start()
    time.sleep(0.01)


def grows(page: Page) -> None:
    """a list that grows without end"""
    kept = []
    while True:
        kept.append(bytearray(1000))


def recursion_unlimited(page: Page) -> None:
    """calls itself without end, after sys.setrecursionlimit(10**9)"""
    sys.setrecursionlimit(10**9)

    def descend(depth: int) -> int:
        return descend(depth + 1)

    descend(0)


def replaced_by_program(page: Page) -> None:
    """os.exec of a program that runs for 70 seconds"""
    os.execvp("sleep", ["sleep", "70"])


async def hangs(page: Page) -> None:
    """an await that never returns"""
    await asyncio.Event().wait()


async def hangs_deaf(page: Page) -> None:
    """an await that never returns and ignores its cancellation"""
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            continue


async def hangs_in_cleanup(page: Page) -> None:
    """hangs in its finally"""
    try:
        await asyncio.sleep(0)
    finally:
        await asyncio.Event().wait()


async def cancels_itself(page: Page) -> None:
    """cancels its own task"""
    task = asyncio.current_task()
    assert task
    task.cancel()
    await asyncio.sleep(0)


async def cancels_later(page: Page) -> dict[str, str]:
    """cancels its own task and returns"""
    task = asyncio.current_task()
    assert task
    task.cancel()
    return {"url": page.url}
