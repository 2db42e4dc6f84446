"""What stands around the web side: who may ask, how much, how many at once, and how long a request may take to arrive."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from typing import Any

from fastapi.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from .jobs import Desk, Limits

LOOPBACK = ("127.0.0.1", "localhost", "::1")
DELIVERY = 60.0  # seconds a piece of an answer may take to be read
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")  # a name or an address, and perhaps a port


class Refusal(Exception):  # noqa: N818 - an answer, more than an error
    """An answer with a 4xx or 5xx status: one line, and what is allowed."""

    def __init__(self, status: int, message: str, **more: Any):
        super().__init__(message)
        self.status, self.body = status, {"error": message, **more}


def clipped(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."


class Guard:
    """Around everything: who may ask, how much, how many at once; and what every answer says about itself.

    A page of another site that is open in the same browser can send requests here. It is told apart by the name it calls us
    by (Host), by where it says it comes from (Origin, Sec-Fetch-Site), and by not being able to send JSON unasked.
    """

    HEADERS = (
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cache-control", b"no-store"),
    )
    STRICT = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")

    def __init__(self, app: Any, desk: Desk, limits: Limits, allowed: Sequence[str]):
        self.app, self.desk, self.limits = app, desk, limits
        self.allowed = {name.lower() for name in allowed}
        self.busy = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        begun = False

        async def sending(message: Any) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = list(message.get("headers", []))
                names = {name.lower() for name, _ in headers}
                message = {**message, "headers": headers + [one for one in (*self.HEADERS, self.STRICT) if one[0] not in names]}
            await asyncio.wait_for(send(message), DELIVERY)  # whoever does not read its answer does not hold a place for ever

        refusal = None
        try:
            await self.let_in(scope, receive, sending)
        except Refusal as refused:
            refusal = refused
        except Exception as failure:  # no traceback leaves the server, and no request ends it
            logging.getLogger("mixlens.serve").warning("a request failed: %s: %s", type(failure).__name__, failure)
            refusal = Refusal(500, f"this went wrong inside ({type(failure).__name__}).")
        if refusal is not None and not begun:
            headers = {"Retry-After": "5"} if refusal.status == 503 else {}
            headers |= {"Connection": "close"} if refusal.status in (408, 413) else {}  # the rest of the body is not read
            await JSONResponse(refusal.body, refusal.status, headers=headers)(scope, receive, sending)

    async def let_in(self, scope: Any, receive: Any, send: Any) -> None:
        """A request counts as one of those that are answered once it is here as a whole."""
        refusal = self.refusal(scope)
        if refusal is not None:
            raise refusal
        try:
            body = await asyncio.wait_for(self.body(receive), self.limits.arrival)
        except TimeoutError:
            raise Refusal(408, f"the request was not here after {self.limits.arrival:g} seconds. Send it at once.") from None
        if body is None:  # whoever asked is gone
            return
        if self.busy >= self.limits.at_once:
            raise Refusal(503, f"more than {self.limits.at_once} requests at once. Try again in a few seconds.")
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def receiving() -> Any:
            return unread.pop() if unread else await receive()

        self.busy += 1
        try:
            await self.app(scope, receiving, send)
        finally:
            self.busy -= 1

    async def body(self, receive: Any) -> bytes | None:
        """The body, no further than the limit: a length that was announced may be a lie."""
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > self.limits.body:
                raise Refusal(413, f"the request is over {self.limits.body} bytes. Send less.")
        return b"".join(parts)

    def refusal(self, scope: Any) -> Refusal | None:
        """Why this request is not let in, if it is not."""
        pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        headers = dict(pairs)
        for once in ("host", "origin"):
            if sum(name == once for name, _ in pairs) > 1:
                return Refusal(400, f"the request has more than one {once}. Send one.")
        host = headers.get("host", "")
        if host_name(host) not in self.allowed:
            names = ", ".join(sorted(self.allowed))
            return Refusal(403, f"host {clipped(host)!r} is not served. Allowed: {names}. Start with --allow-host to add one.")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None and origin.lower() != f"{scope['scheme']}://{host}".lower():
            return Refusal(403, f"requests from {clipped(origin)!r} are not answered: only this server's own page may ask.")
        visiting = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET" and scope["path"] in ("/", "/docs")
        if site not in ("none", "same-origin") and not visiting:
            return Refusal(403, "requests from other sites are not answered: only this server's own page may ask.")
        if scope["method"] in ("POST", "PUT", "PATCH"):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return Refusal(415, f"the body must be application/json, not {clipped(kind)!r}.")
            length = headers.get("content-length", "0")
            if not length.isdigit() or int(length) > self.limits.body:
                return Refusal(413, f"the request is over {self.limits.body} bytes. Send less.")
        return None


def host_name(host: str) -> str:
    """The name in a Host header, without its port. Nothing where the header is anything else than a name and a port."""
    found = HOST.fullmatch(host.lower())
    return "" if found is None else found[1] or found[2]


def prompt(limits: Limits) -> type[H11Protocol]:
    """Connections that do not wait for ever: one that has sent no whole head of a request after `limits.arrival` seconds is
    closed, and where there are more than `limits.connections` the oldest of those that have not."""

    class Prompt(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.since, self.deadline = self.loop.time(), self.loop.call_later(limits.arrival, self.late)
            there = [one for one in self.connections if isinstance(one, Prompt)]
            if len(there) > limits.connections:
                min((one for one in there if one.waits()), key=lambda one: one.since, default=self).transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self.deadline.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not self.waits():
                self.deadline.cancel()
            elif self.deadline.cancelled():  # the first bytes of the next request on the same connection
                self.since, self.deadline = self.loop.time(), self.loop.call_later(limits.arrival, self.late)

        def waits(self) -> bool:
            """Whether no request is being answered."""
            return self.cycle is None or self.cycle.response_complete

        def late(self) -> None:
            if self.waits() and not self.transport.is_closing():
                self.transport.close()

    return Prompt
