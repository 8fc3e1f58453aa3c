"""A process that holds a lock: python -m tests.cluster.holder URL SESSION_SECONDS

Prints ``holds TOKEN`` when it has the lock, each state of its session, and ``released`` or ``lost`` at its end. It ends
when standard input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from uttu.cluster import Lock, connect
from uttu.errors import LockLost


def say(text: str) -> None:
    print(text, flush=True)


async def main(url: str, session_seconds: float) -> None:
    tree = await connect(url, session_seconds)
    tree.listen(lambda state: say(state.value))
    lock = Lock(tree, "door", "holder")
    say(f"holds {await lock.acquire()}")
    await asyncio.to_thread(sys.stdin.read)
    say(f"is held: {lock.is_held}")
    with contextlib.suppress(LockLost):
        await lock.release()
        say("released")
    await tree.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
