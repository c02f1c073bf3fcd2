"""The server of the page: a few addresses that are read, none that changes anything.

Whoever may use this machine may look at 127.0.0.1. Any other address is for whoever has the token in its link; a cookie
keeps it from then on. Pages that other sites make a browser fetch under a name of theirs are refused by that name.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import resources
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from bcnet.errors import BCNetError, RunError
from bcnet.report.comparison import comparison_page
from bcnet.report.evidence import read_evidence
from bcnet.report.page import plotting_library, style
from bcnet.report.single import report_page
from bcnet.watch.state import machine_state, run_state

_COOKIE = "bcnet_token"
_LOCAL_NAMES = ["127.0.0.1", "localhost", "[::1]"]
_HEADERS = {
    # Vega compiles its expressions; reports hold their scripts themselves. Nothing comes from or goes to elsewhere.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def serve(runs: Sequence[Path], host: str, port: int, said: Callable[[str], None]) -> None:
    """Serve the page about `runs` until the process is stopped.

    Args:
        runs: Run directories that exist.
        host: Address to listen on; one of another machine's view needs the token that the link has.
        port: 0 takes one that is free.
        said: Hears the link once the server listens.

    Raises:
        BCNetError: the address is not one of this machine, or the port is taken.
    """
    listening = _listen(host, port)
    token = None if _is_loopback(host) else secrets.token_urlsafe(16)
    link = f"http://{_name(host)}:{listening.getsockname()[1]}/"
    said(link if token is None else f"{link}?token={token}")
    config = uvicorn.Config(application(runs, token), log_level="warning", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])


def application(runs: Sequence[Path], token: str | None = None) -> Starlette:
    """The server as an ASGI application; with a token, whoever asks has to know it."""
    guard = Middleware(_Token, token=token) if token else Middleware(TrustedHostMiddleware, allowed_hosts=_LOCAL_NAMES)
    pages = _Pages(tuple(runs))
    return Starlette(
        routes=[
            Route("/", _asset("watch.html", "text/html")),
            Route("/watch.js", _asset("watch.js", "text/javascript")),
            Route("/style.css", pages.style),
            Route("/vega.js", pages.library),
            Route("/machine.json", pages.machine),
            Route("/runs/{number:int}.json", pages.run),
            Route("/runs/{number:int}/report", pages.report),
            Route("/comparison", pages.comparison),
            Route("/favicon.ico", _nothing),
        ],
        middleware=[Middleware(_Headers), guard],
    )


class _Pages:
    """What is shown of the runs. What takes time is done in threads, so that every run is told of in turn."""

    def __init__(self, runs: tuple[Path, ...]) -> None:
        self._runs = runs

    async def style(self, request: Request) -> Response:
        own = resources.files("bcnet.watch").joinpath("assets", "watch.css").read_text(encoding="utf-8")
        return Response(style() + own, media_type="text/css")

    async def library(self, request: Request) -> Response:
        return Response(plotting_library(), media_type="text/javascript")

    async def machine(self, request: Request) -> Response:
        return JSONResponse({"runs": len(self._runs), **machine_state(self._runs[0])})

    async def run(self, request: Request) -> Response:
        known = request.query_params.get("known", "0")
        if not (known.isascii() and known.isdecimal() and len(known) < 10):
            return PlainTextResponse(f"known is a number of candidates; got {known!r}", 400)
        folder = self._folder(request)
        if folder is None:
            return PlainTextResponse(f"there are {len(self._runs)} runs, counted from 0", 404)
        return JSONResponse(await run_in_threadpool(run_state, folder, int(known)))

    async def report(self, request: Request) -> Response:
        folder = self._folder(request)
        if folder is None:
            return PlainTextResponse(f"there are {len(self._runs)} runs, counted from 0", 404)
        return await _page(lambda: report_page(read_evidence(folder)))

    async def comparison(self, request: Request) -> Response:
        if len(self._runs) < 2:
            return RedirectResponse("/runs/0/report")
        return await _page(lambda: comparison_page([read_evidence(run) for run in self._runs]))

    def _folder(self, request: Request) -> Path | None:
        number: int = request.path_params["number"]
        return self._runs[number] if number < len(self._runs) else None


async def _page(make: Callable[[], str]) -> Response:
    try:
        return HTMLResponse(await run_in_threadpool(make))
    except RunError as error:  # as the run that is being written, or damaged
        return PlainTextResponse(str(error), 409)


def _nothing(request: Request) -> Response:
    return Response(status_code=204)


def _asset(name: str, kind: str) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        return Response(resources.files("bcnet.watch").joinpath("assets", name).read_bytes(), media_type=kind)

    return answer


class _Headers(BaseHTTPMiddleware):
    """What browsers are told of every answer."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers.update(_HEADERS)
        return response


class _Token(BaseHTTPMiddleware):
    """Lets in who has the token, in the link or in the cookie that the link sets."""

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
    """What other machines, or this one, call the address."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
