"""What stands around the web side: who may ask, how much, and how many at once."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect

from .jobs import Desk, Limits

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")  # a name or an address, and perhaps a port


class Refusal(Exception):  # noqa: N818 - an answer, more than an error
    """An answer with a 4xx or 5xx status: one line, and what is allowed."""

    def __init__(self, status: int, message: str, **more: Any):
        super().__init__(message)
        self.status, self.body = status, {"error": message, **more}

    def answer(self) -> JSONResponse:
        """Where the rest of a body is not read the connection ends."""
        headers = {429: {"Retry-After": "5"}, 503: {"Retry-After": "5"}, 413: {"Connection": "close"}}
        return JSONResponse(self.body, self.status, headers=headers.get(self.status))


def clipped(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."


def host_name(host: str) -> str:
    """The name in a Host header, without its port. Nothing where the header is anything else than a name and a port."""
    parts = HOST.fullmatch(host.lower())
    return "" if parts is None else parts[1] or parts[2]


def refuse_sender(request: Request, allowed: Collection[str]) -> None:
    """Refuse a request whose sender cannot be told from its head; one that calls this server by a name that is not its
    own; and one that a page of another site sends, unless it opens a page of ours, as a link on another site does."""
    headers = request.headers
    for name in ("host", "origin"):
        if len(headers.getlist(name)) > 1:
            raise Refusal(400, f"the request has more than one {name}. Send one.")
    host = headers.get("host", "")
    if host_name(host) not in allowed:
        names = ", ".join(sorted(allowed))
        raise Refusal(
            403, f"host {clipped(host)!r} is not served. Allowed: {names}. Start with --allow-host to add one."
        )
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if origin is not None and origin.lower() != f"{request.url.scheme}://{host}".lower():
        raise Refusal(403, f"requests from {clipped(origin)!r} are not answered: only this server's own page may ask.")
    visits = request.method == "GET" and request.scope["path"] in ("/", "/docs")
    if site not in ("none", "same-origin") and not (visits and headers.get("sec-fetch-mode") == "navigate"):
        raise Refusal(403, "requests from other sites are not answered: only this server's own page may ask.")


async def body_of(request: Request, most: int) -> bytes:
    """The body: JSON of at most `most` bytes, read no further than that, as a length that was announced may be a
    lie."""
    too_large = Refusal(413, f"the request is over {most} bytes. Send less.")
    if request.method in ("POST", "PUT", "PATCH"):
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, f"the body must be application/json, not {clipped(kind)!r}.")
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > most:
            raise too_large
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise too_large
    return bytes(body)


class Guard:
    """Around everything: who may ask, how much, how many at once; and what every answer says about itself.

    A page of another site that is open in the same browser can send requests here. It is recognised by the name it
    calls us by (Host), by where it says it comes from (Origin, Sec-Fetch-Site), and by not being able to send JSON
    unasked. A request counts as one of those that are answered once it is here as a whole. No traceback leaves the
    server.
    """

    def __init__(self, app: Any, desk: Desk, limits: Limits, allowed: Sequence[str]):
        self.app, self.desk, self.limits = app, desk, limits
        self.allowed = {name.lower() for name in allowed}
        self.busy = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return
        begun = False

        async def answer(message: Any) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun, headers = True, MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            request = Request(scope, receive)
            refuse_sender(request, self.allowed)
            unread = [{"type": "http.request", "body": await body_of(request, self.limits.body), "more_body": False}]
            if self.busy >= self.limits.at_once:
                raise Refusal(503, f"more than {self.limits.at_once} requests at once. Try again in a few seconds.")

            async def received() -> Any:
                return unread.pop() if unread else await receive()

            self.busy += 1
            try:
                await self.app(scope, received, answer)
            finally:
                self.busy -= 1
            return
        except ClientDisconnect:
            return
        except Refusal as refused:
            refusal = refused
        except Exception as failure:  # no request ends the server
            name = type(failure).__name__
            logging.getLogger("mixlens.serve").warning("a request failed: %s: %s", name, failure)
            refusal = Refusal(500, f"this went wrong inside ({name}).")
        if not begun:
            await refusal.answer()(scope, receive, answer)
