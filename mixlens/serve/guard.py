"""What stands around the web side: who may ask, how much, how many at once, and how long a body may take to arrive."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastapi.responses import JSONResponse

from .jobs import Desk, Limits

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
REFUSAL_HEADERS = (  # status, header, value; where the rest of a body is not read the connection ends
    (503, "Retry-After", "5"),
    (408, "Connection", "close"),
    (413, "Connection", "close"),
)
DELIVERY = 60.0  # seconds a piece of an answer may take to be read
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")  # a name or an address, and perhaps a port


class Refusal(Exception):  # noqa: N818 - an answer, more than an error
    """An answer with a 4xx or 5xx status: one line, and what is allowed."""

    def __init__(self, status: int, message: str, **more: Any):
        super().__init__(message)
        self.status, self.body = status, {"error": message, **more}


def clipped(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."


@dataclass(frozen=True)
class Head:
    """The head of a request. Names of headers are in small letters; of a header that is sent twice the last one counts."""

    scheme: str
    method: str
    path: str
    pairs: Sequence[tuple[str, str]]

    @cached_property
    def headers(self) -> dict[str, str]:
        return dict(self.pairs)

    def times(self, name: str) -> int:
        """How often a header was sent."""
        return [header for header, _ in self.pairs].count(name)

    @property
    def host(self) -> str:
        return self.headers.get("host", "")

    @property
    def has_body(self) -> bool:
        return self.method in ("POST", "PUT", "PATCH")

    @property
    def visits_page(self) -> bool:
        """Whether a browser opens one of the pages, as a link on another site does."""
        return self.method == "GET" and self.path in ("/", "/docs") and self.headers.get("sec-fetch-mode") == "navigate"


def head_of(scope: Any) -> Head:
    """The head of a request as ASGI gives it."""
    pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
    return Head(scope["scheme"], scope["method"], scope["path"], pairs)


def host_name(host: str) -> str:
    """The name in a Host header, without its port. Nothing where the header is anything else than a name and a port."""
    parts = HOST.fullmatch(host.lower())
    return "" if parts is None else parts[1] or parts[2]


# --- who may ask ------------------------------------------------------------------------------------------------------


def refuse_repeated(head: Head) -> None:
    """Refuse a request whose sender cannot be told from its head."""
    for name in ("host", "origin"):
        if head.times(name) > 1:
            raise Refusal(400, f"the request has more than one {name}. Send one.")


def refuse_host(head: Head, allowed: Collection[str]) -> None:
    """Refuse a request that calls this server by a name that is not its own."""
    if host_name(head.host) not in allowed:
        names = ", ".join(sorted(allowed))
        raise Refusal(
            403, f"host {clipped(head.host)!r} is not served. Allowed: {names}. Start with --allow-host to add one."
        )


def refuse_other_sites(head: Head) -> None:
    """Refuse a request that a page of another site sends, unless it opens a page of ours."""
    origin, site = head.headers.get("origin"), head.headers.get("sec-fetch-site", "none")
    if origin is not None and origin.lower() != f"{head.scheme}://{head.host}".lower():
        raise Refusal(403, f"requests from {clipped(origin)!r} are not answered: only this server's own page may ask.")
    if site not in ("none", "same-origin") and not head.visits_page:
        raise Refusal(403, "requests from other sites are not answered: only this server's own page may ask.")


def refuse_body(head: Head, most: int) -> None:
    """Refuse a body that is no JSON, or announces more than `most` bytes."""
    kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, f"the body must be application/json, not {clipped(kind)!r}.")
    length = head.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > most:
        raise _too_large(most)


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"the request is over {most} bytes. Send less.")


# --- the guard --------------------------------------------------------------------------------------------------------


class Guard:
    """Around everything: who may ask, how much, how many at once; and what every answer says about itself.

    A page of another site that is open in the same browser can send requests here. It is recognised by the name it calls us
    by (Host), by where it says it comes from (Origin, Sec-Fetch-Site), and by not being able to send JSON unasked.
    """

    def __init__(self, app: Any, desk: Desk, limits: Limits, allowed: Sequence[str]):
        self.app, self.desk, self.limits = app, desk, limits
        self.allowed = {name.lower() for name in allowed}
        self.busy = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] == "http":
            await self.answer(scope, receive, Sender(send))

    async def answer(self, scope: Any, receive: Any, send: Sender) -> None:
        """Answers a request, or says why not."""
        refusal = await self.refusal(scope, receive, send)
        if refusal is not None and not send.begun:
            await _refusal_answer(refusal)(scope, receive, send)

    async def refusal(self, scope: Any, receive: Any, send: Any) -> Refusal | None:
        """Lets a request in, and gives the reason if it is not answered. No traceback leaves the server."""
        try:
            await self.let_in(scope, receive, send)
        except Refusal as refusal:
            return refusal
        except Exception as failure:  # no request ends the server
            return _inside(failure)
        return None

    async def let_in(self, scope: Any, receive: Any, send: Any) -> None:
        """A request counts as one of those that are answered once it is here as a whole."""
        self.check(head_of(scope))
        body = await self.whole_body(receive)
        if body is None:  # the client is gone
            return
        if self.busy >= self.limits.at_once:
            raise Refusal(503, f"more than {self.limits.at_once} requests at once. Try again in a few seconds.")
        self.busy += 1
        try:
            await self.app(scope, Receiver(body, receive), send)
        finally:
            self.busy -= 1

    def check(self, head: Head) -> None:
        """Refuse a request that is not let in."""
        refuse_repeated(head)
        refuse_host(head, self.allowed)
        refuse_other_sites(head)
        if head.has_body:
            refuse_body(head, self.limits.body)

    async def whole_body(self, receive: Any) -> bytes | None:
        """The body, if it arrives in time; None where the client is gone."""
        try:
            return await asyncio.wait_for(_read_body(receive, self.limits.body), self.limits.arrival)
        except TimeoutError:
            raise Refusal(
                408, f"the request was not here after {self.limits.arrival:g} seconds. Send it at once."
            ) from None


async def _read_body(receive: Any, most: int) -> bytes | None:
    """The body, no further than the limit: a length that was announced may be a lie."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


def _refusal_answer(refusal: Refusal) -> JSONResponse:
    """The answer to a request that is refused, or that failed."""
    headers = {name: value for status, name, value in REFUSAL_HEADERS if status == refusal.status}
    return JSONResponse(refusal.body, refusal.status, headers=headers)


def _inside(failure: Exception) -> Refusal:
    """The answer to a request that failed here; the log has what went wrong."""
    name = type(failure).__name__
    logging.getLogger("mixlens.serve").warning("a request failed: %s: %s", name, failure)
    return Refusal(500, f"this went wrong inside ({name}).")


class Sender:
    """Sends an answer with the headers that every answer has, and knows whether it has begun."""

    def __init__(self, send: Any):
        self.send, self.begun = send, False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.begun, message = True, _with_headers(message)
        await asyncio.wait_for(
            self.send(message), DELIVERY
        )  # a client that does not read must not hold its place for ever


def _with_headers(message: Any) -> dict[str, Any]:
    """The beginning of an answer with the usual headers, unless it has such headers itself."""
    headers = list(message.get("headers", []))
    names = {name.lower() for name, _ in headers}
    return {**message, "headers": headers + [header for header in HEADERS if header[0] not in names]}


class Receiver:
    """Gives the application the body that was read already, and then whatever else comes."""

    def __init__(self, body: bytes, receive: Any):
        self.unread, self.receive = [{"type": "http.request", "body": body, "more_body": False}], receive

    async def __call__(self) -> Any:
        return self.unread.pop() if self.unread else await self.receive()
