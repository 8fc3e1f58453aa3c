"""``weft down``: stop the private server of this folder."""

from __future__ import annotations


def down() -> None:
    """Stop the private server of this folder, whoever uses it. Its data stays; the next command starts it again."""
    from pathlib import Path

    from weft.cli.words import number
    from weft.drivers.urls import masked
    from weft.jobs import settings
    from weft.jobs.embedded import Embedded

    server = Embedded(Path())
    used = server.users()
    if server.down():
        left = f"; it was used over {number(used, 'connection')}, which now wait for it" if used else ""
        print(f"stopped the server in {server.place.folder}{left}")
        return
    broker = settings.load(Path()).broker
    if broker:
        print(f"nothing to stop: the broker {masked(broker)} is not Weft's")
    else:
        print("nothing to stop: the server of this folder is not running")
