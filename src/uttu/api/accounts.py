"""Users and tokens of the dashboard, in one file that only its owner may read.

``.uttu/dashboard/access.json`` holds users with scrypt hashes of their passwords, SHA-256 hashes of tokens (a token has
256 random bits, so a slow hash would add nothing), and the sessions that were ended before their time. Every change
takes a lock, reads the file, and replaces it as a whole, so commands and the dashboard may change it at the same time.
A running dashboard sees a change with the next request.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from uttu.errors import ConfigError, UsageError, UttuError

_KEY_BYTES: Final = 32
# 16 MiB and about 50 ms for each guess.
_SCRYPT_N: Final = 2**14
_SCRYPT_R: Final = 8
_LEAST_PASSWORD: Final = 8
_LONGEST_PASSWORD: Final = 1024
_LONGEST_NAME: Final = 64
_TOKEN_PREFIX: Final = "uttu_"


class Role(StrEnum):
    """What a user may do. Each role may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def allows(self, needed: Role) -> bool:
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


class User(msgspec.Struct, frozen=True):
    """Who sends a request."""

    name: str
    role: Role


class StoredUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user as stored. ``epoch`` changes with the password; a session of another epoch is not valid."""

    role: Role
    salt: bytes
    password: bytes
    epoch: str
    created: float = 0.0


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as stored. ``start``: its first characters, to tell it from others."""

    role: Role
    digest: bytes
    start: str
    created: float = 0.0


class AccountRow(msgspec.Struct, frozen=True, kw_only=True):
    """A user or a token, without its secret."""

    name: str
    role: Role
    created: float
    is_token: bool = False
    start: str = ""


class AccessFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file. ``ended``: ids of sessions that were ended, and when they would have expired."""

    users: dict[str, StoredUser] = {}
    tokens: dict[str, StoredToken] = {}
    ended: dict[str, float] = {}


class Accounts:
    """The users and tokens in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._kept = AccessFile()
        # Checked for unknown names, so that they take as long as known ones.
        self._decoy = _store_password(secrets.token_hex(), Role.VIEWER)

    def read(self) -> AccessFile:
        """The present content; read again only if the file has changed.

        :raises ConfigError: the file can't be read.
        """
        try:
            found = self._file.stat()
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                self._kept = msgspec.json.decode(self._file.read_bytes(), type=AccessFile)
                self._stamp = stamp
        except FileNotFoundError:
            self._stamp, self._kept = None, AccessFile()
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{self._file} can't be read: {error}") from error
        return self._kept

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a user nor a token."""
        found = self.read()
        return not (found.users or found.tokens)

    def list_rows(self) -> list[AccountRow]:
        found = self.read()
        users = [AccountRow(name=name, role=each.role, created=each.created) for name, each in found.users.items()]
        tokens = [
            AccountRow(name=name, role=each.role, created=each.created, is_token=True, start=each.start)
            for name, each in found.tokens.items()
        ]
        return sorted(users, key=lambda row: row.name) + sorted(tokens, key=lambda row: row.name)

    def add_user(self, name: str, password: str, role: Role) -> None:
        """Add a user. The first one must be an admin: from then on everybody has to log in.

        :raises UsageError: the name or the password can't be used, the name is taken, or nobody would be an admin.
        """
        _check_name(name)
        _check_password(password)
        stored = _store_password(password, role)

        def add(found: AccessFile) -> AccessFile:
            _check_admin(found, role)
            if name in found.users:
                raise UsageError(f"There is a user {name!r} already. Change the password: uttu dashboard user passwd")
            return msgspec.structs.replace(found, users=found.users | {name: stored})

        self._change(add)

    def check_admin(self, role: Role) -> None:
        """Check that a user of this role may be added now.

        :raises UsageError: there is no admin yet.
        """
        _check_admin(self.read(), role)

    def change_password(self, name: str, password: str) -> None:
        """Set another password, which ends all sessions of the user.

        :raises UsageError: there is no such user, or the password can't be used.
        """
        _check_password(password)

        def change(found: AccessFile) -> AccessFile:
            if name not in found.users:
                raise UsageError(_explain_missing("user", name, found.users))
            stored = _store_password(password, found.users[name].role)
            stored = msgspec.structs.replace(stored, created=found.users[name].created)
            return msgspec.structs.replace(found, users=found.users | {name: stored})

        self._change(change)

    def remove_user(self, name: str) -> None:
        """Remove a user and end the user's sessions.

        :raises UsageError: there is no such user.
        """

        def remove(found: AccessFile) -> AccessFile:
            if name not in found.users:
                raise UsageError(_explain_missing("user", name, found.users))
            return msgspec.structs.replace(found, users={k: v for k, v in found.users.items() if k != name})

        self._change(remove)

    def add_token(self, name: str, role: Role) -> str:
        """Make a token and return it. Only its hash is stored, so it can't be shown again.

        :raises UsageError: the name can't be used, or is taken.
        """
        _check_name(name)
        token = _TOKEN_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        stored = StoredToken(role=role, digest=_digest(token), start=token[:10], created=time.time())

        def add(found: AccessFile) -> AccessFile:
            if name in found.tokens:
                raise UsageError(f"There is a token {name!r} already. Remove it first: uttu dashboard token rm {name}")
            return msgspec.structs.replace(found, tokens=found.tokens | {name: stored})

        self._change(add)
        return token

    def remove_token(self, name: str) -> None:
        """Remove a token; it is refused from now on.

        :raises UsageError: there is no such token.
        """

        def remove(found: AccessFile) -> AccessFile:
            if name not in found.tokens:
                raise UsageError(_explain_missing("token", name, found.tokens))
            return msgspec.structs.replace(found, tokens={k: v for k, v in found.tokens.items() if k != name})

        self._change(remove)

    def end_session(self, session: str, expires: float) -> None:
        """Refuse a session from now on."""
        now = time.time()
        self._change(
            lambda found: msgspec.structs.replace(
                found, ended={k: at for k, at in found.ended.items() if at > now} | {session: expires}
            )
        )

    def check_password(self, name: str, password: str) -> User | None:
        """The user with this name and password; None if one of them is wrong. Takes about 50 ms in either case."""
        found = self.read().users.get(name)
        stored = found or self._decoy
        given = _hash_password(password[:_LONGEST_PASSWORD], stored.salt)
        is_right = hmac.compare_digest(given, stored.password)
        return User(name, found.role) if found is not None and is_right else None

    def check_token(self, token: str) -> User | None:
        """The user that a bearer token stands for; None if there is no such token."""
        digest = _digest(token)
        for name, stored in self.read().tokens.items():
            if hmac.compare_digest(digest, stored.digest):
                return User(name, stored.role)
        return None

    def load_key(self) -> bytes:
        """The key that signs sessions; made at the first call."""
        path = self._file.with_name("session.key")
        with self._locked():
            with contextlib.suppress(FileNotFoundError):
                key = path.read_bytes()
                if len(key) == _KEY_BYTES:
                    return key
            key = secrets.token_bytes(_KEY_BYTES)
            _replace_file(path, key)
            return key

    def _change(self, change: Callable[[AccessFile], AccessFile]) -> None:
        with self._locked():
            _replace_file(self._file, msgspec.json.format(msgspec.json.encode(change(self.read()))))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self._file.with_name("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UttuError(f"{self._file.parent} can't be written: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _replace_file(path: Path, content: bytes) -> None:
    """Write a file as a whole, readable by its owner only."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        target = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(target, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(target)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UttuError(f"{path} can't be written: {error.strerror}") from error


def _store_password(password: str, role: Role) -> StoredUser:
    salt = secrets.token_bytes(16)
    return StoredUser(
        role=role,
        salt=salt,
        password=_hash_password(password, salt),
        epoch=secrets.token_hex(8),
        created=time.time(),
    )


def _hash_password(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(errors="surrogatepass"), salt=salt, n=_SCRYPT_N, r=_SCRYPT_R, p=1)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def sign(key: bytes, purpose: str, text: str) -> str:
    """The signature of a text for one purpose, as text for cookies and forms."""
    found = hmac.new(key, f"{purpose}\n{text}".encode(errors="surrogatepass"), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(found).decode().rstrip("=")


def _check_name(name: str) -> None:
    if not name or len(name) > _LONGEST_NAME or not all(each.isalnum() or each in "-_.@" for each in name):
        raise UsageError(f"The name {name!r:.80} can't be used. Use letters, digits, '-', '_', '.' and '@'")


def _check_admin(found: AccessFile, role: Role) -> None:
    if role is not Role.ADMIN and not any(user.role is Role.ADMIN for user in found.users.values()):
        raise UsageError(
            "The first user must be an admin, as nobody else could manage the dashboard: give the role admin "
            "(--role admin)"
        )


def _check_password(password: str) -> None:
    if not _LEAST_PASSWORD <= len(password) <= _LONGEST_PASSWORD:
        raise UsageError(f"Give a password of {_LEAST_PASSWORD} to {_LONGEST_PASSWORD} characters")


def _explain_missing(what: str, name: str, known: dict[str, StoredUser] | dict[str, StoredToken]) -> str:
    there = f"there are: {', '.join(sorted(known))}" if known else "there are none"
    return f"There is no {what} {name!r:.80}; {there}"
