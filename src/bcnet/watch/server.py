"""Server of the live page, with read-only addresses.

A run is shown as its report, which the browser reloads while the run is active. On 127.0.0.1 every user of the machine
has access. On other addresses a token in the link is required; a cookie stores it. Requests under a foreign host name,
which other sites can cause, are refused.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import uvicorn
from markupsafe import escape
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from bcnet.errors import BCNetError
from bcnet.report.comparison import comparison_page
from bcnet.report.evidence import read_evidence
from bcnet.report.single import report_page
from bcnet.run.status import read_status, status_lines

_COOKIE = "bcnet_token"
_LOCAL_NAMES = ["127.0.0.1", "localhost", "[::1]"]
_REFRESH = 5  # seconds
_HEADERS = {
    # Vega compiles expressions; reports contain their scripts. Nothing is loaded from or sent to other hosts.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def serve(runs: Sequence[Path], host: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the page about `runs` until the process is stopped.

    Args:
        runs: run directories; missing ones are waited for.
        host: address to listen on; other addresses than the loopback require the token in the link.
        port: port; 0 takes a free one.
        on_ready: called with the link once the server responds.

    Raises:
        BCNetError: the address is not one of this machine, or the port is in use.
    """
    listening = _listen(host, port)
    token = None if _is_loopback(host) else secrets.token_urlsafe(16)
    link = f"http://{_name(host)}:{listening.getsockname()[1]}/"
    config = uvicorn.Config(application(runs, token), log_level="warning", access_log=False, lifespan="off")
    _Server(config, lambda: on_ready(link if token is None else f"{link}?token={token}")).run(sockets=[listening])


class _Server(uvicorn.Server):
    """A server that reports when it responds, since Ctrl-C before that would interrupt its start."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call `on_ready`."""
        await super().startup(sockets=sockets)
        self._on_ready()


def application(runs: Sequence[Path], token: str | None = None) -> Starlette:
    """Return the server as an ASGI application; with `token`, requests require it."""
    guard = Middleware(_Token, token=token) if token else Middleware(TrustedHostMiddleware, allowed_hosts=_LOCAL_NAMES)
    pages = _Pages(tuple(runs))
    return Starlette(
        routes=[
            Route("/", pages.index),
            Route("/runs/{number:int}", pages.run),
            Route("/comparison", pages.comparison),
            Route("/favicon.ico", _no_content),
        ],
        middleware=[Middleware(_Headers), guard],
    )


class _Pages:
    """Pages about the runs. Slow work is done in threads."""

    def __init__(self, runs: tuple[Path, ...]) -> None:
        self._runs = runs

    async def index(self, request: Request) -> Response:
        if len(self._runs) == 1:
            return HTMLResponse(await run_in_threadpool(_run_page, self._runs[0]))
        links = [f'<li><a href="/runs/{number}">{escape(run)}</a></li>' for number, run in enumerate(self._runs)]
        return HTMLResponse(_plain_page(f'<ul>{"".join(links)}</ul><p><a href="/comparison">Comparison</a></p>'))

    async def run(self, request: Request) -> Response:
        number: int = request.path_params["number"]
        if number >= len(self._runs):
            return PlainTextResponse(f"there are {len(self._runs)} runs, counted from 0", 404)
        return HTMLResponse(await run_in_threadpool(_run_page, self._runs[number]))

    async def comparison(self, request: Request) -> Response:
        if len(self._runs) < 2:
            return RedirectResponse("/runs/0")
        return HTMLResponse(await run_in_threadpool(_comparison_page, self._runs))


def _run_page(run: Path) -> str:
    """Return the report of a run, or its status if there is none; reloaded while the run is not finished."""
    try:
        status = read_status(run) if run.exists() else None
        lines = [f"{run}: waiting for the run to start"] if status is None else list(status_lines(status))
        if status is None or status.state in ("empty", "damaged"):
            return _plain_page(_status(lines), refresh=True)
        page = report_page(read_evidence(run))
    except (BCNetError, OSError) as error:  # files being written, replaced or removed are read again next time
        return _plain_page(_status([str(error)]), refresh=True)
    if status.state in ("finished", "in part"):
        return page
    head = page.replace("<head>", f'<head><meta http-equiv="refresh" content="{_REFRESH}">', 1)
    return head.replace('<main id="main">', f'<main id="main">{_status(lines)}', 1)


def _comparison_page(runs: Sequence[Path]) -> str:
    try:
        return comparison_page([read_evidence(run) for run in runs])
    except (BCNetError, OSError) as error:
        return _plain_page(_status([str(error)]), refresh=True)


def _status(lines: Sequence[str]) -> str:
    return f'<pre class="status">{escape(chr(10).join(lines))}</pre>'


def _plain_page(body: str, *, refresh: bool = False) -> str:
    again = f'<meta http-equiv="refresh" content="{_REFRESH}">' if refresh else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{again}<title>bcnet watch</title></head>'
        f"<body>{body}</body></html>"
    )


def _no_content(request: Request) -> Response:
    return Response(status_code=204)


class _Headers(BaseHTTPMiddleware):
    """Sets security headers of every response."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers.update(_HEADERS)
        return response


class _Token(BaseHTTPMiddleware):
    """Requires the token, in the link or in the cookie that the link sets."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        super().__init__(app)
        self._token = token

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        if self._is_right(request.query_params.get("token", "")):
            answer = RedirectResponse(request.url.path, 303)
            answer.set_cookie(_COOKIE, self._token, httponly=True, samesite="strict")
            return answer
        if self._is_right(request.cookies.get(_COOKIE, "")):
            return await call_next(request)
        return PlainTextResponse("This page needs the link with the token that `bcnet watch` has printed.", 403)

    def _is_right(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


def _listen(host: str, port: int) -> socket.socket:
    try:
        ((family, kind, *_, address), *_) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with ExitStack() as stack:
            listening = stack.enter_context(socket.socket(family, kind))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            stack.pop_all()
    except (OSError, OverflowError, UnicodeError) as error:
        raise BCNetError(
            f"a server needs an address of this machine and a free port; got {host} and {port} "
            f"({getattr(error, 'strerror', None) or error}): give others by --host and --port; 0 takes a free port"
        ) from None
    return listening


def _name(host: str) -> str:
    """Return the name under which other machines, or this one, reach the address."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
