"""The file with users and tokens, and the commands that change it."""

from __future__ import annotations

import io
import stat
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import Uttu
from tests.cli.conftest import uttu as uttu
from uttu.api.accounts import Accounts, Role, User
from uttu.api.audit import AuditLog
from uttu.errors import UsageError

FILE = Path(".uttu/dashboard/access.json")


@pytest.fixture
def accounts(tmp_path: Path) -> Accounts:
    return Accounts(tmp_path / "dashboard" / "access.json")


def test_users(accounts: Accounts) -> None:
    accounts.add_user("root", "long enough", Role.ADMIN)
    accounts.add_user("wang", "long enough", Role.OPERATOR)
    assert accounts.check_password("wang", "long enough") == User("wang", Role.OPERATOR)
    assert accounts.check_password("wang", "wrong") is None
    assert accounts.check_password("nobody", "long enough") is None
    with pytest.raises(UsageError, match="already"):
        accounts.add_user("wang", "long enough", Role.ADMIN)
    with pytest.raises(UsageError, match="password of 8"):
        accounts.add_user("li", "short", Role.ADMIN)
    with pytest.raises(UsageError, match="can't be used"):
        accounts.add_user("../li", "long enough", Role.ADMIN)
    accounts.remove_user("wang")
    assert accounts.check_password("wang", "long enough") is None


def test_the_first_user_is_an_admin(accounts: Accounts, uttu: Uttu, monkeypatch: pytest.MonkeyPatch) -> None:
    for role in (Role.VIEWER, Role.OPERATOR):
        with pytest.raises(UsageError, match="must be an admin"):
            accounts.add_user("wang", "long enough", role)
    assert accounts.is_empty
    monkeypatch.setattr(sys, "stdin", io.StringIO("long enough\n"))
    told = uttu("dashboard", "user", "add", "wang")
    assert told.code == 2
    assert "--role admin" in told.err
    assert Accounts(FILE).is_empty
    accounts.add_user("wang", "long enough", Role.ADMIN)
    accounts.add_user("li", "long enough", Role.VIEWER)
    # Without an admin, the next user must be one again.
    accounts.remove_user("wang")
    with pytest.raises(UsageError, match="must be an admin"):
        accounts.add_user("zhao", "long enough", Role.VIEWER)


def test_tokens_are_stored_as_hashes(accounts: Accounts, tmp_path: Path) -> None:
    token = accounts.add_token("ci", Role.VIEWER)
    accounts.add_user("wang", "long enough", Role.ADMIN)
    text = (tmp_path / "dashboard" / "access.json").read_text()
    assert token not in text
    assert "long enough" not in text
    assert accounts.check_token(token) == User("ci", Role.VIEWER)
    assert accounts.check_token(token + "x") is None
    accounts.remove_token("ci")
    assert accounts.check_token(token) is None


def test_only_the_owner_may_read_the_files(accounts: Accounts, tmp_path: Path) -> None:
    accounts.add_token("ci", Role.VIEWER)
    accounts.load_key()
    AuditLog(tmp_path / "dashboard" / "audit.jsonl").write("wang", "test")
    for file in (tmp_path / "dashboard").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE((tmp_path / "dashboard").stat().st_mode) == 0o700


def test_changes_at_the_same_time(accounts: Accounts, tmp_path: Path) -> None:
    def add(number: int) -> None:
        Accounts(tmp_path / "dashboard" / "access.json").add_token(f"t{number}", Role.VIEWER)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accounts.read().tokens) == 10


def test_the_audit_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uttu.api.audit.MOST_BYTES", 2000)
    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(300):
        log.write("wang", f"action {number}", "x" * 1000)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 5 * 4000
    found = log.read(3)
    assert [entry.action for entry in found.entries] == ["action 299", "action 298", "action 297"]
    assert log.read(3, found.next).entries[0].action == "action 296"


def test_commands(uttu: Uttu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("long enough\n"))
    assert uttu("dashboard", "user", "add", "wang", "--role", "admin").code == 0
    assert "wang" in uttu("dashboard", "user", "ls").out
    token = uttu("dashboard", "token", "add", "ci", "--role", "operator").out.strip()
    assert token.startswith("uttu_")
    listed = uttu("dashboard", "token", "ls")
    assert "operator" in listed.out
    assert token not in listed.out
    accounts = Accounts(FILE)
    assert accounts.check_password("wang", "long enough") == User("wang", Role.ADMIN)
    assert accounts.check_token(token) == User("ci", Role.OPERATOR)
    monkeypatch.setattr(sys, "stdin", io.StringIO("another one\n"))
    assert uttu("dashboard", "user", "passwd", "wang").code == 0
    assert Accounts(FILE).check_password("wang", "another one")
    assert uttu("dashboard", "token", "rm", "ci").code == 0
    assert uttu("dashboard", "user", "rm", "wang").code == 0
    assert uttu("dashboard", "user", "rm", "wang").code == 2
    assert uttu("dashboard", "user", "add", "li", "--role", "king").code == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_no_other_address_without_users(uttu: Uttu, host: str) -> None:
    told = uttu("dashboard", "--host", host)
    assert told.code == 2
    assert "uttu dashboard user add" in told.err
    assert "leave out --host" in told.err


def test_no_other_name_without_users(uttu: Uttu) -> None:
    Path("uttu.toml").write_text('[dashboard]\nhosts = ["crawls.example"]\n')
    told = uttu("dashboard")
    assert told.code == 2
    assert "crawls.example" in told.err
    assert "the setting hosts" in told.err
    assert "--host" not in told.err


def test_a_port_that_is_taken(uttu: Uttu) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as other:
        told = uttu("dashboard", "--port", str(other.getsockname()[1]))
    assert told.code == 2
    assert "--port" in told.err


def test_open_without_a_dashboard(uttu: Uttu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTTU_DASHBOARD_PORT", "9")
    told = uttu("open")
    assert told.code == 3
    assert "uttu dashboard" in told.err
