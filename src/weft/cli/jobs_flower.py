"""``weft jobs flower``: Flower, Celery's dashboard, started so that it can be left running.

On loopback, with its API on, behind a password: without one Flower tells browsers that any web page may use its API,
and that API can start and stop whatever the workers can do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

LOOPBACK = ("127.0.0.1", "localhost", "::1")
USER = "weft"
_AUTH = ("basic_auth", "auth")


def flower(
    ctx: typer.Context,
    args: Annotated[list[str] | None, typer.Argument(metavar="[FLOWER'S OPTIONS]", show_default=False)] = None,
) -> None:
    """Watch workers, tasks and queues in the browser: --port=5555, --basic-auth=USER:PASSWORD …"""
    from weft.cli.jobs_celery import app_of, hand_over
    from weft.jobs.settings import management_of

    given = list(args or ())
    if "--help" in given:
        hand_over(ctx, "flower", given, broker=False)
    app = app_of(ctx)
    settings = getattr(app, "weft", None)
    folder: Path = getattr(app, "folder", Path())
    table = dict(settings.flower) if settings else {}
    if settings and (management := management_of(settings.broker)):
        table.setdefault("broker_api", f"{management.rstrip('/')}/api/")
    words = words_for(table, given, os.environ, folder)
    app.loader.import_default_modules()
    hand_over(ctx, "flower", words)


def words_for(table: Mapping[str, Any], given: list[str], environment: Mapping[str, str], folder: Path) -> list[str]:
    """The words to start Flower with: those of ``[jobs.flower]``, the given ones, and what makes it safe.

    :raises ConfigError: it would be open to others without a password.
    """
    from weft.errors import ConfigError

    words = [f"--{name}={_text(value)}" for name, value in table.items()] + given
    seen = {word.lstrip("-").partition("=")[0].replace("-", "_"): word.partition("=")[2] for word in words}
    for name in ("address", *_AUTH):
        if name not in seen and f"FLOWER_{name.upper()}" in environment:
            seen[name] = environment[f"FLOWER_{name.upper()}"]
    address = seen.get("address") or LOOPBACK[0]
    guarded = any(seen.get(name) for name in _AUTH)
    if address not in LOOPBACK and not guarded and "unix_socket" not in seen:
        raise ConfigError(
            f"Flower would be open to everybody at {address}: give it a password with --basic-auth=USER:PASSWORD, "
            "or basic_auth in [jobs.flower]"
        )
    if not guarded and "conf" not in seen and "FLOWER_UNAUTHENTICATED_API" not in environment:
        file, password = password_of(folder)
        words.append(f"--basic_auth={USER}:{password}")
        print(f"weft: Flower asks for a login: {USER}, and the password in {file}", file=sys.stderr)
    return [*words, f"--address={address}"]


def password_of(folder: Path) -> tuple[Path, str]:
    """The password for Flower in this folder, made once; and the file, for its owner's eyes only, that has it."""
    import secrets

    from weft.launch import FOLDER

    file = folder / FOLDER / "jobs" / "flower-password"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file, file.read_text().strip()
    with os.fdopen(descriptor, "w") as output:
        output.write(secrets.token_urlsafe(24) + "\n")
    return file, file.read_text().strip()


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
