"""Arguments for Flower, Celery's web interface, that make it safe by default.

Flower binds to loopback. On another address it must have a password from the user. On loopback without one, a generated
password in ``.uttu/jobs/flower-password`` protects it. If port 5555 is taken, the next free one is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import celery

from uttu.clients.addresses import is_port_free
from uttu.jobs.settings import management_of

LOOPBACK = ("127.0.0.1", "localhost", "::1")
USER = "uttu"
PORT = 5555
_PORTS = 100  # number of ports to try, from PORT on
_AUTH = ("basic_auth", "auth")


def build_app_arguments(app: celery.Celery, given: list[str], environment: Mapping[str, str]) -> list[str]:
    """Build Flower's arguments for an app, ours or a plain Celery app; see :func:`build_arguments`.

    The management address of RabbitMQ, if the settings have one, becomes ``broker_api``.

    :raises ConfigError: see :func:`build_arguments`.
    """
    settings = getattr(app, "uttu", None)
    table = dict(settings.flower) if settings else {}
    if settings and (management := management_of(settings.broker)):
        table.setdefault("broker_api", f"{management.rstrip('/')}/api/")
    return build_arguments(table, given, environment, getattr(app, "folder", Path()))


def build_arguments(
    table: Mapping[str, Any], given: list[str], environment: Mapping[str, str], folder: Path
) -> list[str]:
    """Build Flower's arguments from ``[jobs.flower]``, the given ones, and safe defaults.

    :raises ConfigError: Flower would be open to other machines without a password.
    """
    from uttu.errors import ConfigError

    arguments = [f"--{name}={_format_value(value)}" for name, value in table.items()] + given
    values = {
        argument.lstrip("-").partition("=")[0].replace("-", "_"): argument.partition("=")[2] for argument in arguments
    }
    for name in ("address", *_AUTH):
        if name not in values and f"FLOWER_{name.upper()}" in environment:
            values[name] = environment[f"FLOWER_{name.upper()}"]
    address = values.get("address") or LOOPBACK[0]
    has_login = any(values.get(name) for name in _AUTH)
    if address not in LOOPBACK and not has_login and "unix_socket" not in values:
        raise ConfigError(
            f"Flower at {address} would be open to everybody. Set a password with --basic-auth=USER:PASSWORD, "
            "or basic_auth in [jobs.flower]"
        )
    if not has_login and "conf" not in values and "FLOWER_UNAUTHENTICATED_API" not in environment:
        file, password = read_password(folder)
        arguments.append(f"--basic_auth={USER}:{password}")
        print(f"uttu: Flower needs a login: the user {USER}, and the password in {file}", file=sys.stderr)
    arguments.append(f"--address={address}")
    if not values.keys() & {"unix_socket", "conf"}:
        arguments += _port_arguments(values.get("port", "") or environment.get("FLOWER_PORT", ""), address)
    return arguments


def _port_arguments(given: str, address: str) -> list[str]:
    """Return no argument if the given or the default port is free, else another free port.

    :raises ConfigError: the given port is taken or invalid, or no port is free.
    """
    from uttu.errors import ConfigError

    if given and not (given.isdigit() and int(given) < 65_536):
        raise ConfigError(f"Flower cannot listen: {given!r} is not a port. Give a number up to 65535")
    if given and not is_port_free(int(given), address):
        raise ConfigError(f"Flower cannot listen: port {given} is in use. Give another with --port=PORT")
    if given or is_port_free(PORT, address):
        return []
    port = next((port for port in range(PORT + 1, PORT + _PORTS) if is_port_free(port, address)), 0)
    if not port:
        raise ConfigError(f"Flower cannot listen: port {PORT} is in use. Give another with --port=PORT")
    print(f"uttu: Port {PORT} is in use. Flower is at http://{address}:{port}", file=sys.stderr)
    return [f"--port={port}"]


def read_password(folder: Path) -> tuple[Path, str]:
    """Return the password for Flower in this folder and its file, which only the owner can read; created once."""
    import secrets

    from uttu.settings import DATA_FOLDER

    file = folder / DATA_FOLDER / "jobs" / "flower-password"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file, file.read_text().strip()
    with os.fdopen(descriptor, "w") as output:
        output.write(secrets.token_urlsafe(24) + "\n")
    return file, file.read_text().strip()


def _format_value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
