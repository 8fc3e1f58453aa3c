"""``uttu dashboard``: the HTTP API and the pages, their users and tokens; and ``uttu open``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uttu.cli.options import AsJson
from uttu.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from uttu.api.accounts import AccountRow, Accounts
    from uttu.api.settings import DashboardConfig

AccountName = Annotated[str, typer.Argument(help="The name.", metavar="NAME", show_default=False)]
RoleName = Annotated[str, typer.Option("--role", help="viewer, operator or admin.", metavar="ROLE")]


def _group(text: str) -> typer.Typer:
    return typer.Typer(
        help=text, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )


def load(**flags: Any) -> DashboardConfig:
    """The configuration of this folder.

    :raises ConfigError: a setting is wrong, or the extra is not installed.
    """
    from importlib.util import find_spec

    missing = [name for name in ("starlette", "uvicorn", "jinja2") if find_spec(name) is None]
    if missing:
        raise ConfigError("The dashboard needs the \"dashboard\" extra: pip install 'uttu[dashboard]'")
    from uttu.api.settings import load_config

    return load_config(flags=flags)


def accounts() -> Accounts:
    from uttu.api.accounts import Accounts

    return Accounts(load().access_file)


dashboard = typer.Typer(
    help="Watch and steer everything in the browser.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@dashboard.callback()
def run(
    ctx: typer.Context,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on; 127.0.0.1 without it.", metavar="ADDRESS", show_default=False),
    ] = "",
    port: Annotated[
        int | None,
        typer.Option(help="The port; without it 8642, or the next free one.", min=1, max=65535, show_default=False),
    ] = None,
    tls_cert: Annotated[str, typer.Option(help="The certificate, for https.", metavar="FILE", show_default=False)] = "",
    tls_key: Annotated[str, typer.Option(help="The key of the certificate.", metavar="FILE", show_default=False)] = "",
    root_path: Annotated[
        str, typer.Option(help="The path prefix of a proxy: /uttu.", metavar="PATH", show_default=False)
    ] = "",
) -> None:
    """Serve the dashboard until Ctrl-C. Others can reach it only if it has users; see uttu dashboard user."""
    if ctx.invoked_subcommand:
        return
    config = load(host=host, port=port, tls_cert=tls_cert, tls_key=tls_key, root_path=root_path)
    from uttu.api.server import bind, choose_port, make_server

    if port is None:
        config = choose_port(config)

    server = make_server(config)
    with bind(config) as listening:
        print(f"The dashboard is at {config.settings.url}", file=sys.stderr, flush=True)
        config.url_file.write_text(config.settings.url)
        server.run(sockets=[listening])


user = _group("The people who may log in.")
token = _group("Tokens for programs: Authorization: Bearer TOKEN.")
dashboard.add_typer(user, name="user")
dashboard.add_typer(token, name="token")


def parse_role(text: str) -> Any:
    from uttu.api.accounts import Role

    try:
        return Role(text)
    except ValueError:
        raise UsageError(f"There is no role {text!r}: say {', '.join(Role)}") from None


def read_password() -> str:
    """The password from the terminal, asked twice; or the first line of standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    from getpass import getpass

    given = getpass("Password: ")
    if getpass("Again: ") != given:
        raise UsageError("The two passwords differ")
    return given


def record(action: str, target: str) -> None:
    """Write to the audit log what this command did."""
    from getpass import getuser

    from uttu.api.audit import AuditLog

    AuditLog(load().access_file.with_name("audit.jsonl")).write(getuser(), action, target, via="command")


@user.command("add")
def add_user(name: AccountName, role: RoleName = "viewer") -> None:
    """Add a user; the first one must be an admin. The password is asked for, or read from standard input."""
    known, chosen = accounts(), parse_role(role)
    known.check_admin(chosen)
    known.add_user(name, read_password(), chosen)
    record("user add", f"name={name} role={role}")
    print(f"{name} is added as {role}")


@user.command("passwd")
def change_password(name: AccountName) -> None:
    """Change the password of a user. All sessions of the user end."""
    accounts().change_password(name, read_password())
    record("user passwd", f"name={name}")
    print(f"{name} has a new password")


@user.command("rm")
def remove_user(name: AccountName) -> None:
    """Remove a user. All sessions of the user end."""
    accounts().remove_user(name)
    record("user rm", f"name={name}")
    print(f"{name} is removed")


@user.command("ls")
def list_users(as_json: AsJson = False) -> None:
    """List the users."""
    _show([row for row in accounts().list_rows() if not row.is_token], as_json, "users", "uttu dashboard user add")


@token.command("add")
def add_token(name: AccountName, role: RoleName = "viewer") -> None:
    """Make a token and print it. It is shown only now."""
    made = accounts().add_token(name, parse_role(role))
    record("token add", f"name={name} role={role}")
    print(made)


@token.command("rm")
def remove_token(name: AccountName) -> None:
    """Remove a token."""
    accounts().remove_token(name)
    record("token rm", f"name={name}")
    print(f"{name} is removed")


@token.command("ls")
def list_tokens(as_json: AsJson = False) -> None:
    """List the tokens, each with its first characters."""
    _show([row for row in accounts().list_rows() if row.is_token], as_json, "tokens", "uttu dashboard token add")


def _show(rows: list[AccountRow], as_json: bool, words: str, command: str) -> None:
    from uttu.cli.output import Screen, print_json, say

    if as_json:
        print_json(rows)
        return
    if not rows:
        say(f"there are no {words}; add one with: {command} NAME")
        return
    cells = [(row.name, str(row.role), *([f"{row.start}…"] if row.is_token else [])) for row in rows]
    Screen().table(("NAME", "ROLE", "TOKEN")[: len(cells[0])], cells)


def open_page() -> None:
    """Open the dashboard of this folder in the browser."""
    import contextlib
    import socket
    import webbrowser
    from urllib.parse import urlsplit

    config = load()
    url = config.settings.url
    with contextlib.suppress(OSError):
        url = config.url_file.read_text().strip() or url
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 80), 2).close()
    except OSError as error:
        raise ConfigError(f"No dashboard answers at {url}: start it with uttu dashboard, or uttu up") from error
    print(url)
    webbrowser.open(url)


globals()["open"] = open_page
