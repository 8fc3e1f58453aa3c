"""Who sends a request, and whether the request may come from where it does.

A request is made by one of these:

token     ``Authorization: Bearer uttu_…``
session   a signed cookie from a login. It holds the user, an id, the time it expires and the user's epoch, which
          changes with the password. Logging out stores the id as ended.
local     anybody, as an administrator, if there are neither users nor tokens and the dashboard is on loopback only

Browsers send cookies, and reach loopback, also for pages of other sites. So a request that changes something must prove
that it comes from our own page: with a token that is signed for its session (form field ``csrf`` or header
``X-CSRF-Token``), and its ``Origin`` and ``Sec-Fetch-Site`` must not name another site. Requests with a bearer token
need no proof, as no browser adds one by itself. Without users, a JSON request that no browser sent needs none, either.

On loopback the ``Host`` must be a loopback name, so that another site can't reach us by letting its own name resolve to
127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
import time
from collections import OrderedDict, deque
from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from uttu.api.accounts import Accounts, Role, User, sign
from uttu.api.problems import Forbidden, TooManyAttempts, Unauthenticated, WrongHost
from uttu.api.settings import DashboardConfig, is_loopback
from uttu.errors import UsageError

CSRF_HEADER: Final = "x-csrf-token"
CSRF_FIELD: Final = "csrf"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
LOCAL_USER: Final = User("local", Role.ADMIN)
# Failed logins within these seconds, from one address and for one name.
_WINDOW_SECONDS: Final = 300.0
_MOST_PER_ADDRESS: Final = 20
_MOST_PER_NAME: Final = 10
_MOST_REMEMBERED: Final = 10_000
# How often streams ask whether their session is still valid.
_STREAM_SECONDS: Final = 1.0
# Passwords that are checked at the same time; each takes 16 MiB.
_MOST_HASHES: Final = 2


class Session(msgspec.Struct, frozen=True, array_like=True):
    """The content of a session cookie."""

    user: str
    id: str
    expires: float
    epoch: str


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends a request. ``user`` is None before a login. ``via``: token, session, local, or empty."""

    user: User | None = None
    via: str = ""
    csrf: str = ""
    session: Session | None = None
    visit: str = ""
    """A new id for a visitor without a session, to be set as a cookie; it binds the token of the login form."""


class AttemptLimit:
    """Counts attempts by key within ``_WINDOW_SECONDS``, and remembers ``_MOST_REMEMBERED`` keys."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._attempts: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, key: str, now: float) -> float:
        """Count an attempt. Returns 0 if it is allowed, else the seconds until the next one is."""
        attempts = self._attempts.setdefault(key, deque())
        self._attempts.move_to_end(key)
        while attempts and attempts[0] <= now - _WINDOW_SECONDS:
            attempts.popleft()
        if len(attempts) >= self._most:
            return attempts[0] + _WINDOW_SECONDS - now
        attempts.append(now)
        if len(self._attempts) > _MOST_REMEMBERED:
            self._attempts.popitem(last=False)
        return 0.0

    def forget(self, key: str) -> None:
        """Forget the attempts of a key, after a success."""
        self._attempts.pop(key, None)


class Access:
    """Identifies visitors, starts and ends sessions."""

    def __init__(self, config: DashboardConfig, accounts: Accounts) -> None:
        self.accounts = accounts
        self._settings = config.settings
        self._key = accounts.load_key()
        self._addresses = AttemptLimit(_MOST_PER_ADDRESS)
        self._names = AttemptLimit(_MOST_PER_NAME)
        self._hashing = asyncio.Semaphore(_MOST_HASHES)
        # Cookies are shared by all ports of a host.
        self.cookie = f"uttu_session_{self._settings.port}"
        self._visit_cookie = f"uttu_visit_{self._settings.port}"

    @property
    def is_open(self) -> bool:
        """Whether everybody who reaches the dashboard is an administrator."""
        return self._settings.is_local and self.accounts.is_empty

    def check_host(self, connection: HTTPConnection) -> None:
        """:raises WrongHost: the Host header is not a name of this server."""
        host = parse_host(connection.headers.get("host", ""))
        if self._settings.hosts and host in {name.lower() for name in self._settings.hosts}:
            return
        if is_loopback(self._settings.host):
            if not is_loopback(host):
                raise WrongHost(
                    f"This dashboard has no host name {host!r:.100}. Open it as {self._settings.url}, or add the name "
                    "to [dashboard] hosts in uttu.toml"
                )
        elif self._settings.hosts and not is_loopback(host):
            raise WrongHost(f"This dashboard has no host name {host!r:.100}. Add it to [dashboard] hosts in uttu.toml")

    def identify(self, connection: HTTPConnection) -> Visitor:
        """Find out who sends a request.

        :raises Unauthenticated: its bearer token is wrong.
        """
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            user = self.accounts.check_token(token.strip())
            if user is None:
                raise Unauthenticated("The bearer token is not valid. Make one with: uttu dashboard token add NAME")
            return Visitor(user=user, via="token")
        if self.is_open:
            if "x-forwarded-for" in connection.headers or "forwarded" in connection.headers:
                raise Forbidden("Behind a proxy the dashboard needs users: uttu dashboard user add NAME --role admin")
            return Visitor(user=LOCAL_USER, via="local", csrf=self._sign_csrf("local"))
        session = self._read_session(connection.cookies.get(self.cookie, ""))
        if session is not None:
            found = self.accounts.read()
            stored = found.users.get(session.user)
            is_valid = session.expires > time.time() and session.id not in found.ended
            if stored is not None and is_valid and hmac.compare_digest(stored.epoch, session.epoch):
                return Visitor(
                    user=User(session.user, stored.role),
                    via="session",
                    csrf=self._sign_csrf(session.id),
                    session=session,
                )
        known = connection.cookies.get(self._visit_cookie, "")
        visit = known or secrets.token_urlsafe(16)
        return Visitor(csrf=self._sign_csrf(f"visit {visit}"), visit="" if known else visit)

    def is_valid(self, visitor: Visitor) -> bool:
        """Whether a visitor still is who he was: for streams, which stay open for hours."""
        if visitor.user is None:
            return False
        found = self.accounts.read()
        if visitor.via == "session" and visitor.session is not None:
            session, stored = visitor.session, found.users.get(visitor.session.user)
            is_current = stored is not None and stored.epoch == session.epoch and stored.role is visitor.user.role
            return is_current and session.expires > time.time() and session.id not in found.ended
        if visitor.via == "token":
            stored_token = found.tokens.get(visitor.user.name)
            return stored_token is not None and stored_token.role is visitor.user.role
        return self.is_open

    async def wait_for_end(self, visitor: Visitor) -> None:
        """Return when a visitor's session or token is not valid any more."""
        while self.is_valid(visitor):  # noqa: ASYNC110 - other processes change the file, too
            await asyncio.sleep(_STREAM_SECONDS)

    def check_role(self, visitor: Visitor, needed: Role) -> User:
        """:raises Unauthenticated: nobody has logged in.
        :raises Forbidden: the user's role does not allow it.
        """
        if visitor.user is None:
            raise Unauthenticated("Log in, or send a bearer token")
        if not visitor.user.role.allows(needed):
            raise Forbidden(f"This needs the role {needed}; {visitor.user.name} is {visitor.user.role}")
        return visitor.user

    def check_origin(self, request: Request, visitor: Visitor) -> None:
        """:raises Forbidden: a browser says that the request comes from another site."""
        if visitor.via == "token":
            return
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        if origin is not None and not self._is_own_origin(request, origin):
            raise Forbidden(f"The request comes from another site: {origin:.100}")
        if site is not None and site not in ("same-origin", "none"):
            raise Forbidden("The request comes from another site")

    def check_forgery(self, request: Request, visitor: Visitor, given: str = "") -> None:
        """Check that a request that changes something comes from our own page, or from no browser.

        :param given: The form field ``csrf``; the header counts without it.
        :raises Forbidden: it may come from another site.
        """
        if visitor.via == "token":
            return
        self.check_origin(request, visitor)
        headers = request.headers
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        proof = given or headers.get(CSRF_HEADER, "")
        if proof and hmac.compare_digest(proof.encode(), visitor.csrf.encode()):
            return
        is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
        if not proof and visitor.via == "local" and is_json and origin is None and site is None:
            return
        raise Forbidden(
            "The request has no valid CSRF token. Send the one of GET /api/v1/session as the header X-CSRF-Token, "
            "or reload the page"
        )

    def _is_own_origin(self, request: Request, origin: str) -> bool:
        try:
            parts = urlsplit(origin)
            return bool(parts.netloc) and (
                parts.netloc.lower() == request.headers.get("host", "").lower()
                or (parts.hostname or "") in {name.lower() for name in self._settings.hosts}
            )
        except ValueError:
            return False

    async def log_in(self, request: Request, name: str, password: str) -> Session:
        """Check a login, and make a session for :meth:`set_session`.

        :raises TooManyAttempts: too many logins failed, from this address or for this name.
        :raises Unauthenticated: the name or the password is wrong.
        """
        address, now = find_address(request), time.monotonic()
        wait = self._addresses.wait(address, now) or self._names.wait(name[:100], now)
        if wait:
            raise TooManyAttempts(
                f"Too many logins failed. Try again in {wait:.0f} seconds", {"Retry-After": str(int(wait) + 1)}
            )
        async with self._hashing:
            user = await asyncio.to_thread(self.accounts.check_password, name, password)
        stored = self.accounts.read().users.get(name)
        if user is None or stored is None:
            raise Unauthenticated("The name or the password is wrong")
        self._addresses.forget(address)
        self._names.forget(name[:100])
        expires = time.time() + self._settings.session_hours * 3600
        return Session(user.name, secrets.token_urlsafe(16), expires, stored.epoch)

    async def change_password(self, request: Request, visitor: Visitor, old: str, new: str) -> Session:
        """Change the user's own password, which ends all sessions. Returns a new one for :meth:`set_session`.

        :raises TooManyAttempts: too many old passwords were wrong, here or at the login.
        :raises UsageError: the old password is wrong, or the new one can't be used.
        """
        if visitor.session is None:
            raise UsageError("Only a user who has logged in has a password")
        name = visitor.session.user
        try:
            await self.log_in(request, name, old)
        except Unauthenticated:
            raise UsageError("The old password is wrong") from None
        async with self._hashing:
            await asyncio.to_thread(self.accounts.change_password, name, new)
        return await self.log_in(request, name, new)

    def csrf_of(self, session: Session) -> str:
        return self._sign_csrf(session.id)

    def set_session(self, request: HTTPConnection, response: Response, session: Session) -> None:
        """Set the cookie of a session."""
        payload = base64.urlsafe_b64encode(msgspec.json.encode(session)).decode().rstrip("=")
        value = f"{payload}.{sign(self._key, 'session', payload)}"
        self._set_cookie(request, response, self.cookie, value, int(self._settings.session_hours * 3600))

    def end_session(self, request: HTTPConnection, response: Response, visitor: Visitor) -> None:
        """End a session, and remove its cookie."""
        if visitor.session is not None:
            self.accounts.end_session(visitor.session.id, visitor.session.expires)
        self._set_cookie(request, response, self.cookie, "", 0)

    def set_visit(self, request: HTTPConnection, response: Response, visitor: Visitor) -> None:
        """Set the cookie of a visitor without a session, for the login form."""
        if visitor.visit:
            self._set_cookie(request, response, self._visit_cookie, visitor.visit, 3600)

    def _set_cookie(self, request: HTTPConnection, response: Response, name: str, value: str, seconds: int) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path=self._settings.root_path or "/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )

    def _read_session(self, cookie: str) -> Session | None:
        payload, _, signature = cookie.partition(".")
        if not payload or not hmac.compare_digest(signature.encode(), sign(self._key, "session", payload).encode()):
            return None
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=Session)
        except (binascii.Error, msgspec.MsgspecError, ValueError):
            return None

    def _sign_csrf(self, session: str) -> str:
        return sign(self._key, "csrf", session)


def parse_host(header: str) -> str:
    """The host name in a Host header, without its port."""
    if header.startswith("["):
        return header.partition("]")[0].strip("[]").lower()
    return header.partition(":")[0].lower().rstrip(".")


def is_own_path(text: str) -> bool:
    """Whether a text is a path of this server. Browsers take ``//host`` and ``/\\host`` for another one."""
    return text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()


def find_address(request: HTTPConnection) -> str:
    """The address that a request comes from."""
    return request.client.host if request.client else ""


def check_bind(config: DashboardConfig, accounts: Accounts) -> None:
    """Check that the dashboard may listen where the settings say.

    :raises UsageError: others can reach it, and it has neither users nor tokens.
    """
    settings = config.settings
    if settings.is_local or not accounts.is_empty:
        return
    if is_loopback(settings.host):
        what, hint = ", ".join(settings.hosts), "remove these names from the setting hosts"
    else:
        what, hint = f"{settings.host}:{settings.port}", "leave out --host and the setting host"
    raise UsageError(
        f"Others can reach the dashboard at {what}, and it has no users. Add one first with: uttu dashboard user add "
        f"NAME --role admin; or {hint}, so that only this machine can reach it"
    )
