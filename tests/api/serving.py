"""An app with the pages over sample data, as the dashboard mounts them: with a user, a token and its headers."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.api.sample import SampleData
from uttu.api.pages.routes import PageServer, render_login
from uttu.api.pages.shapes import Role, User

ADMIN = User("wang", Role.ADMIN)
TOKEN = "token-of-the-session"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)


def create_sample_app(data: SampleData | None = None, user: User | None = ADMIN) -> Starlette:
    """The pages for one user; None for somebody who is not logged in."""

    class SignIn(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
            request.state.user = user
            request.state.csrf = TOKEN
            response = await call_next(request)
            response.headers["content-security-policy"] = POLICY
            return response

    async def login(request: Request) -> Response:
        return render_login(request, failed=request.query_params.get("failed", ""))

    pages = PageServer(data or SampleData())
    app = Starlette(routes=[*pages.routes(), Route("/login", login)], middleware=[Middleware(SignIn)])
    app.state.pages = pages
    return app
