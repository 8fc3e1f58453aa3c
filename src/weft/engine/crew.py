"""A crew of processes on this machine.

Each is started with a pipe to its standard input that is never written to: when the supervisor is
killed the pipe closes, and they drain instead of crawling on unseen. One that dies is replaced;
its pages go back to their lanes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

from weft.engine.tasks import task_group
from weft.errors import WeftError

# A worker that dies so often in a row is not killed by chance.
_MOST_DEATHS = 10
_SHORT_LIFE_SECONDS = 60.0
_RESTART_SECONDS = 0.5
# The exit codes that workers have of themselves. Before, they say why.
_SPOKEN = range(1, 6)


class Processes:
    """``count`` processes running ``command``; see :class:`weft.engine.supervisor.Crew`.

    What nobody is to see in the list of processes, such as passwords, goes into their ``environment``.
    """

    def __init__(self, command: Sequence[str], count: int, environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._count = count
        self._environment = environment or {}
        self._running: set[asyncio.subprocess.Process] = set()
        self._draining = False

    async def run(self) -> None:
        async with task_group() as group:
            for _ in range(self._count):
                group.create_task(self._keep_running())

    def drain(self) -> None:
        if not self._draining:
            self._draining = True
            self._signal(signal.SIGTERM)

    def stop(self) -> None:
        # To the workers, the second signal means stop; the first was the drain.
        self.drain()
        self._signal(signal.SIGTERM)

    def heed(self) -> None:
        """Nothing to do here: each of them hears for itself."""

    async def _keep_running(self) -> None:
        deaths = code = 0
        while deaths < _MOST_DEATHS and not self._draining:
            began = asyncio.get_running_loop().time()
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                start_new_session=True,
                env=os.environ | self._environment,
            )
            self._running.add(process)
            if self._draining:
                process.send_signal(signal.SIGTERM)
            code = await process.wait()
            self._running.discard(process)
            if code == 0 or self._draining:
                return
            if code > 0:
                by_spider = "something in the spider ended it"
                why = f"its message is above, unless {by_spider}" if code in _SPOKEN else by_spider
                raise WeftError(f"a worker process failed with exit code {code}; {why}")
            deaths = deaths + 1 if asyncio.get_running_loop().time() - began < _SHORT_LIFE_SECONDS else 1
            await asyncio.sleep(_RESTART_SECONDS)
        if not self._draining:
            raise WeftError(f"a worker process died {deaths} times in a row; the last time by signal {-code}")

    def _signal(self, number: signal.Signals) -> None:
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
