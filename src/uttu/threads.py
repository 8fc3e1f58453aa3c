"""Threads for work that would block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def run_in_new_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread that ends with it.

    Not ``asyncio.to_thread``: a spider may use its few threads too, and keep all of them busy.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="uttu-work")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, work)
    finally:
        thread.shutdown(wait=False)
